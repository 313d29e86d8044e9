"""The report: records as one page, as pictures in files, and as a page that lives while a sweep runs."""
