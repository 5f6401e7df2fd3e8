"""Columns as Vega-Lite channels: axes, legends and tooltips with their units."""

from typing import Any

from refprotofl.report.page.parts import Column, Figure, Form

Spec = dict[str, Any]

LEGEND_ROOM = 6  # entries of a legend beside each other
_FORMATS: dict[Form, str] = {"share": ".2%", "whole": ",d", "number": ",.5~r", "seconds": ",.3~r"}
_AXIS_FORMATS: dict[Form, str] = {"share": ".2~%", "whole": ",d", "number": ",.6~r", "seconds": ",.6~r"}
_BYTES = "format(datum.value, '.3~s') + 'B'"


def channel(figure: Figure, name: str, *, log: bool = False, zero: bool = False) -> Spec:
    column = figure.column(name)
    axis: Spec = {"title": column.title, "tickCount": 8, **_axis_format(column)}
    scale: Spec = {"zero": zero, "nice": True}
    if column.form == "whole":
        axis["tickMinStep"] = 1
        scale["nice"] = False
    if log:
        axis |= {"tickCount": 5, "labelOverlap": True}
        scale = {"type": "log", "nice": False, "padding": 30}
    return {"field": name, "type": "quantitative", "axis": axis, "scale": scale}


def _axis_format(column: Column) -> Spec:
    return {"labelExpr": _BYTES} if column.form == "bytes" else {"format": _AXIS_FORMATS.get(column.form, "")}


def series(figure: Figure, name: str, ordered: bool = False) -> Spec:
    """Names in the order in which they come, which is that of the colours too."""
    if ordered:
        pairs = dict(zip(figure.values(name), figure.values(figure.size or name), strict=True))
        names = sorted(pairs, key=lambda one: pairs[one])
    else:
        names = list(dict.fromkeys(figure.values(name)))
    there = {**dict.fromkeys(figure.series), **dict.fromkeys(names)}
    legend: Spec = {"title": None, "orient": "top", "columns": LEGEND_ROOM, "labelLimit": 220, "symbolOpacity": 1}
    if len(there) > len(names):
        legend["values"] = [one for one in there if one in names]
    scale: Spec = {"domain": names if ordered else list(there)}
    if ordered:
        scale["scheme"] = "cividis"
    return {"field": name, "type": "nominal", "scale": scale, "legend": legend, "sort": names}


def shade(figure: Figure, name: str) -> Spec:
    column = figure.column(name)
    legend = {"title": column.title, "orient": "top", "gradientLength": 160, **_axis_format(column)}
    scale = {"domain": [0, 1]} if column.form == "share" else {"zero": True}
    return {"field": name, "type": "quantitative", "scale": scale, "legend": legend}


def tooltip(figure: Figure) -> list[Spec]:
    return [_hint(column) for column in figure.columns if column.name not in ("order", "rank", "kind", "front")]


def _hint(column: Column) -> Spec:
    if column.form == "text":
        return {"field": column.name, "type": "nominal", "title": column.title}
    if column.form == "bytes":
        return {"field": column.name, "type": "quantitative", "title": column.title, "format": ".0f"}  # page.js: units
    return {"field": column.name, "type": "quantitative", "title": column.title, "format": _FORMATS[column.form]}
