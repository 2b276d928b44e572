"""Looking at data sets of any size: jobs that write no filters and whose results are rows."""
