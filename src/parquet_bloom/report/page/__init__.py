"""One HTML page about files and their filters: pictures drawn by us, the tables behind them, the data as JSON."""
