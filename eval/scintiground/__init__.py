"""The published ScintiGround scorer, number for number, faults and exceptions included.

Rows are dicts with the twelve keys of the official export; outputs map `task_id` to a text.

- `parse`: the lenient parse, validity and the audit of one text
- `scoring`: one scored row, and the pairing of rows with outputs
- `report`: counts and the report's blocks
- `strata`: strata, the threshold sweep and the audit of a set
- `bootstrap`, `compare`: patient bootstrap and the comparison of two models
- `old_forms`, `loc_form`: the scorers of the older texts
"""
