"""The SGMRI-VQA scorers: published, faults included, and corrected.

The published scorer, number for number, exceptions included; its input is an official `*_inference.json`:

- `parse`: boxes and frames in a text
- `answers`, `boxes`, `text`: the A-, V- and AR-Score of one answer
- `result`: one official result, `scoring`: a whole file, the leaderboard and the paper's columns
- `published_tables`: Tables 3 and 4 of the paper
- `reference`: reference cases
- `marks`: what a judge and BERTScore said, for both scorers
"""
