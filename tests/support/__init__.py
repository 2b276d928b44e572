"""What tests of several folders share: files and tables, stores and other programs, and evaluators by brute force."""
