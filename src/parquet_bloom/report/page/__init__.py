"""One HTML page about files and their filters: pictures drawn by us, the tables behind them, the data as JSON.

Decisions

The page draws its own pictures (`pictures`): rectangles, points and one curve, as SVG.
    Plotly and Vega-Lite weigh more than a whole page may (2 MB). uPlot draws on a canvas, which neither a keyboard nor
    a screen reader can use. SVG works without scripts and on paper. 110 lines of JavaScript add hover, sort and
    movement.

`xml.etree` builds and escapes the document. Its Content-Security-Policy names its style sheet and its script by hash,
so no other script runs even if a name were not escaped. Bounds are in `markup` (rows of a table, characters of a text)
and `content` (cells, points).
"""
