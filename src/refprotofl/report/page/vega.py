"""Figures as Vega-Lite specifications. Colours are set by the page, for its light or dark theme.

Field names are column names of our own; text from a run is only ever a value in the rows.
"""

from collections.abc import Callable
from typing import Any

from refprotofl.report.page.elements import Column, Figure, Form
from refprotofl.report.pictures.partition import round_down

Spec = dict[str, Any]

LEGEND_ROOM = 6  # entries of a legend in one row
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
    """Return the channel of a series; its names keep their order, and so do the colours."""
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


SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
HEIGHT = 260


def spec_of(figure: Figure) -> Spec:
    """Return the specification of a figure; its data set is named `points`."""
    body = _KINDS[figure.kind](figure)
    return {
        "$schema": SCHEMA,
        "description": f"{figure.title}. {figure.caption}",
        "data": {"name": "points"},
        "width": "container",
        "height": HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
        **body,
    }


def _lines(figure: Figure) -> Spec:
    x = channel(figure, figure.x, log=figure.log)
    y = channel(figure, figure.y, zero=figure.zero)
    y["axis"]["title"] = figure.column(figure.y).title
    encoding: Spec = {"x": x, "y": y}
    params: list[Spec] = []
    if figure.colour:
        named = series(figure, figure.colour)
        encoding |= {"color": named, "shape": named}
        params = [{"name": "picked", "select": {"type": "point", "fields": [figure.colour]}, "bind": "legend"}]
        encoding["opacity"] = {"condition": {"param": "picked", "value": 1}, "value": 0.15}
    line: Spec = {
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {k: v for k, v in encoding.items() if k != "shape"},
    }
    if figure.colour:
        line["encoding"]["order"] = {"field": figure.x}
    dots: Spec = {
        "mark": {"type": "point", "filled": True, "size": 44, "opacity": 1},
        "encoding": {**encoding, "tooltip": tooltip(figure)},
        "params": params,
    }
    layers = [line, dots]
    if figure.band:
        low, high = figure.band
        band = {name: encoding[name] for name in ("x", "color", "opacity") if name in encoding}
        band["opacity"] = (
            {"condition": {"param": "picked", "value": 0.16}, "value": 0.03} if params else {"value": 0.16}
        )
        ends = {"y": {**y, "field": low}, "y2": {"field": high}}
        layers = [{"mark": {"type": "area", "aria": False}, "encoding": {**band, **ends}}, *layers]
    return {"layer": layers}


def _bars(figure: Figure) -> Spec:
    """Return bars, sorted by the column `size`."""
    order = [one[figure.x] for one in sorted(figure.records(), key=lambda one: one[figure.size or figure.x])]
    letters = sum(len(str(name)) for name in order)
    axis = {
        "title": figure.column(figure.x).title,
        "labelAngle": 0 if letters <= 36 else -45 if len(order) <= 14 else -90,
        "labelOverlap": len(order) > 40,
    }
    encoding: Spec = {
        "x": {"field": figure.x, "type": "nominal", "sort": order, "axis": {**axis, "labelLimit": 90}},
        "y": channel(figure, figure.y, zero=True),
        "tooltip": tooltip(figure),
    }
    if figure.colour:
        encoding["color"] = shade(figure, figure.colour)
    return {"mark": {"type": "bar", "cornerRadiusEnd": 2}, "encoding": encoding}


def _stacked(figure: Figure) -> Spec:
    """Return stacked bars, sorted by the column `size` if there is one."""
    colour = series(figure, figure.colour or "", ordered=figure.size is not None)
    encoding: Spec = {
        "x": {
            "field": figure.x,
            "type": "ordinal",
            "axis": {"title": figure.column(figure.x).title, "labelAngle": 0, "labelOverlap": True},
        },
        "y": {**channel(figure, figure.y, zero=True), "stack": "zero"},
        "color": colour,
        "tooltip": tooltip(figure),
    }
    if figure.size:
        encoding["order"] = {"field": figure.size}
    return {"mark": {"type": "bar"}, "encoding": encoding}


def _heat(figure: Figure) -> Spec:
    across, upwards = figure.across, figure.upwards
    side = max(300, min(640, 26 * len(upwards)))
    axis = {"labelLimit": 90, "labelOverlap": max(len(across), len(upwards)) > 40, "ticks": False, "domain": False}
    small = max(len(across), len(upwards)) <= 12
    cells: Spec = {
        "mark": {"type": "rect"},
        "encoding": {"color": shade(figure, figure.colour or ""), "tooltip": tooltip(figure)},
    }
    layers = [cells]
    if small:
        text: Spec = {"field": figure.colour, "type": "quantitative", "format": ".0%"}
        ink = {"condition": {"test": f"datum.{figure.colour} > 0.5", "value": "@onshade"}, "value": "@ink"}
        wide = {"filter": f"datum.{figure.colour} >= 0.005"}
        layers.append(
            {
                "transform": [wide],
                "mark": {"type": "text", "fontSize": 10, "aria": False},
                "encoding": {"text": text, "color": ink},
            }
        )
    return {
        "height": side,
        "encoding": {
            "x": {
                "field": figure.x,
                "type": "nominal",
                "sort": across,
                "axis": {**axis, "title": figure.column(figure.x).title, "labelAngle": -45 if len(across) > 5 else 0},
            },
            "y": {
                "field": figure.y,
                "type": "nominal",
                "sort": upwards,
                "axis": {**axis, "title": figure.column(figure.y).title},
            },
        },
        "layer": layers,
    }


def _bubbles(figure: Figure) -> Spec:
    across, upwards = figure.across, figure.upwards
    axis = {"grid": True, "ticks": False, "domain": False, "labelLimit": 90}
    most = max(60, min(700, int((620 / max(1, len(across))) ** 2 * 0.7)))
    return {
        "height": max(200, min(900, 28 * len(upwards))),
        "mark": {"type": "circle", "opacity": 0.85},
        "encoding": {
            "x": {
                "field": figure.x,
                "type": "nominal",
                "sort": across,
                "axis": {**axis, "title": figure.column(figure.x).title, "labelAngle": -90 if len(across) > 14 else 0},
            },
            "y": {
                "field": figure.y,
                "type": "nominal",
                "sort": upwards,
                "axis": {**axis, "title": figure.column(figure.y).title},
            },
            "size": {
                "field": figure.size,
                "type": "quantitative",
                "scale": {"range": [4, most]},
                "legend": {
                    "title": figure.column(figure.size or "").title,
                    "orient": "top",
                    "format": ",d",
                    "values": _steps(figure),
                },
            },
            "tooltip": tooltip(figure),
        },
    }


def _steps(figure: Figure) -> list[int]:
    """Return the sizes in the legend."""
    most = max((int(value) for value in figure.values(figure.size or "") if isinstance(value, int)), default=1)
    return sorted({round_down(max(1, most // part)) for part in (1, 4, 16)})


def _dots(figure: Figure) -> Spec:
    """Return points; `label` marks anchors, which are drawn larger."""
    encoding: Spec = {
        "x": channel(figure, figure.x, log=figure.log),
        "y": channel(figure, figure.y),
        "tooltip": tooltip(figure),
    }
    if figure.colour:
        encoding["color"] = series(figure, figure.colour)
    if figure.label:
        kinds, by_kind = ["anchor", "client"], {"field": figure.label, "legend": None}
        encoding["shape"] = {**by_kind, "type": "nominal", "scale": {"domain": kinds, "range": ["diamond", "circle"]}}
        encoding["size"] = {**by_kind, "type": "ordinal", "scale": {"domain": kinds, "range": [260, 40]}}
        return {"height": 420, "mark": {"type": "point", "filled": True, "opacity": 0.8}, "encoding": encoding}
    return {"height": 320, "mark": {"type": "point", "filled": True, "size": 40, "opacity": 0.7}, "encoding": encoding}


def _frontier(figure: Figure) -> Spec:
    """Return points with intervals; the Pareto front is a dashed step line."""
    low, high = figure.band or (figure.y, figure.y)
    x = channel(figure, figure.x, log=True)
    y = channel(figure, figure.y)
    y["axis"]["title"] = figure.column(figure.y).title
    name = figure.label or ""
    colour = series(figure, name)
    joined = {"filter": "datum.front == 'yes'"}
    return {
        "height": 380,
        "layer": [
            *_levels(figure, y),
            {
                "transform": [joined],
                "mark": {
                    "type": "line",
                    "interpolate": "step-after",
                    "strokeDash": [5, 4],
                    "strokeWidth": 1.5,
                    "color": "@quiet",
                    "aria": False,
                },
                "encoding": {"x": x, "y": y},
            },
            {
                "mark": {"type": "rule", "aria": False},
                "encoding": {"x": x, "y": {**y, "field": low}, "y2": {"field": high}, "color": colour},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
                "encoding": {"x": x, "y": y, "color": colour, "shape": colour, "tooltip": tooltip(figure)},
            },
        ],
    }


def _levels(figure: Figure, y: Spec) -> list[Spec]:
    """Return dotted lines across the picture, each with its name."""
    if not figure.levels:
        return []
    data = {"values": [{"name": f"{name}, almost no traffic", figure.y: level} for name, level in figure.levels]}
    named = {"type": "text", "align": "left", "dx": 4, "dy": -6, "fontSize": 11, "color": "@quiet"}
    return [
        {
            "data": data,
            "mark": {"type": "rule", "strokeDash": [2, 3], "color": "@quiet", "aria": False},
            "encoding": {"y": y},
        },
        {
            "data": data,
            "mark": {**named, "aria": False},
            "encoding": {"x": {"value": 0}, "y": y, "text": {"field": "name", "type": "nominal"}},
        },
    ]


_KINDS: dict[str, Callable[[Figure], Spec]] = {
    "lines": _lines,
    "bars": _bars,
    "stacked": _stacked,
    "heat": _heat,
    "bubbles": _bubbles,
    "dots": _dots,
    "frontier": _frontier,
}
