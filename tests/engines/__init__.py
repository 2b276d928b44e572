"""Files with our filters, read and queried by the engines that people use."""
