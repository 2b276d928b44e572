"""Which columns gain by filters, at which rate, at what cost."""
