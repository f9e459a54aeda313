"""The SGMRI-VQA scorers: published, faults included, and corrected."""
