// Displays the page's data: text as text, figures through Vega with its interpreter, so that nothing is ever evaluated.
"use strict";
(() => {
  const LIGHT = {
    ink: "#1c2530", quiet: "#5b6774", line: "#e4e8ec", accent: "#0072b2",
    series: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5b6774", "#7a4fbf", "#8c564b", "#3a3a3a"],
    ramp: ["#eef4fa", "#9ecae1", "#3182bd", "#08306b"], onshade: "#ffffff",
  };
  const DARK = {
    ink: "#e7ebf0", quiet: "#9aa6b2", line: "#2c343d", accent: "#56b4e9",
    series: ["#56b4e9", "#e69f00", "#2fc49a", "#e491c2", "#f0e442", "#7fa8ff", "#b4bec9", "#b69cff", "#d4a373", "#ffffff"],
    ramp: ["#222b35", "#2a5d85", "#3f8fc4", "#8cccf5"], onshade: "#0b1117",
  };
  const byId = (id) => document.getElementById(id);
  const views = new Map(); // drawn figures, by name
  const figures = new Map(); // their latest data
  let theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";

  function make(tag, settings = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(settings)) {
      if (name === "class") element.className = value;
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null));
    return element;
  }

  // Numbers

  function bytes(number) {
    for (const unit of ["B", "kB", "MB"]) {
      if (number < 1000) return `${unit === "B" ? Math.round(number) : number.toFixed(2)} ${unit}`;
      number /= 1000;
    }
    return `${number.toFixed(2)} GB`;
  }

  function seconds(number) {
    if (number < 90) return `${Math.round(number)} s`;
    const minutes = Math.round(number / 60);
    return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  }

  function cell(value, form) {
    if (value === null || value === undefined) return "-";
    if (typeof value === "string") return value;
    if (form === "share") return `${(100 * value).toFixed(2)} %`;
    if (form === "bytes") return bytes(value);
    if (form === "whole") return value.toLocaleString("en");
    return Number(value.toPrecision(5)).toLocaleString("en", { maximumFractionDigits: 6 });
  }

  // Tables and downloads

  function table(caption, columns, rows) {
    const head = make("tr", {}, ...columns.map((one) => make("th", { scope: "col", class: one.number ? "number" : "" }, one.title)));
    const body = rows.map((row) => make("tr", {}, ...row.map((text, place) => {
      const words = !columns[place].number && text.length > 40;
      return make("td", { class: columns[place].number ? "number" : words ? "long" : "" }, text);
    })));
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      make("table", {}, make("caption", { class: "hidden-text" }, caption), make("thead", {}, head), make("tbody", {}, ...body)));
  }

  function save(name, type, text) {
    const address = URL.createObjectURL(new Blob([text], { type }));
    make("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }

  // A spreadsheet must not take a name for a formula.
  const quoted = (value) => {
    const text = value === null ? "" : typeof value === "string" && /^[=+\-@]/.test(value) ? `'${value}` : String(value);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const csv = (figure) => [figure.columns.map((one) => one.name), ...figure.rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";

  // Charts

  const looks = () => (theme === "dark" ? DARK : LIGHT);

  function config() {
    const look = looks();
    const font = getComputedStyle(document.body).fontFamily;
    return {
      background: "transparent", font,
      axis: {
        labelColor: look.quiet, titleColor: look.quiet, gridColor: look.line, domainColor: look.line, tickColor: look.line,
        labelFontSize: 11, titleFontSize: 11.5, titleFontWeight: 500, labelPadding: 6, ticks: false, domain: false,
      },
      axisX: { grid: false },
      legend: { labelColor: look.ink, titleColor: look.quiet, labelFontSize: 11.5, titleFontSize: 11, symbolSize: 90, offset: 8 },
      view: { stroke: null },
      mark: { color: look.accent, tooltip: false },
      text: { color: look.ink },
      range: { category: look.series, heatmap: look.ramp, ramp: look.ramp, ordinal: look.ramp },
    };
  }

  const records = (figure) => figure.rows.map((row) => Object.fromEntries(figure.columns.map((one, place) => [one.name, row[place]])));
  const nowhere = { load: () => Promise.reject(new Error("nothing is loaded")), sanitize: () => Promise.reject(new Error("no addresses")) };

  function tip(figure, event, value) {
    const box = byId("tip");
    if (value === null || value === undefined || value === "") { box.hidden = true; return; }
    const list = make("dl");
    const inBytes = new Set(figure.columns.filter((one) => one.form === "bytes").map((one) => one.title));
    for (const [name, text] of Object.entries(value)) {
      list.append(make("dt", {}, name), make("dd", {}, inBytes.has(name) ? bytes(Number(text)) : String(text)));
    }
    box.replaceChildren(list);
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    box.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    box.style.top = `${event.clientY + height + 24 > innerHeight ? event.clientY - height - 12 : event.clientY + 16}px`;
  }

  // Legends are as wide as the chart lets them be; a colour that is named gets its value.
  function fitted(spec, width) {
    const narrow = structuredClone(spec);
    const walk = (node) => {
      if (node === null || typeof node !== "object") return;
      if (node.legend && node.legend.columns) {
        const longest = Math.max(1, ...((node.scale && node.scale.domain) || []).map((name) => Math.min(30, String(name).length)));
        node.legend.columns = Math.max(1, Math.min(node.legend.columns, Math.floor((width - 40) / (longest * 6.6 + 30))));
      }
      for (const [name, value] of Object.entries(node)) {
        if (name === "datasets") continue;
        if (typeof value === "string" && value.startsWith("@")) node[name] = looks()[value.slice(1)];
        else walk(value);
      }
    };
    walk(narrow);
    if (width < 480 && narrow.height > 460) narrow.height = 460;
    return narrow;
  }

  async function draw(name) {
    const figure = figures.get(name);
    const place = byId(`chart-${name}`);
    if (!figure || !place) return;
    const spec = fitted({ ...figure.spec, datasets: { points: records(figure) } }, place.clientWidth);
    const built = charts.compile(spec, { config: config() }).spec;
    views.get(name)?.finalize();
    place.replaceChildren();
    const view = new charts.View(charts.parse(built, null, { ast: true }), {
      expr: charts.expressionInterpreter, renderer: "svg", container: place, hover: true, loader: nowhere, logLevel: charts.Warn,
      tooltip: (handler, event, item, value) => tip(figure, event, value),
    });
    view.description(figure.spec.description);
    views.set(name, view);
    await view.runAsync();
    place.dataset.points = figure.rows.length;
  }

  async function svg(name) {
    save(`${name}.svg`, "image/svg+xml", await views.get(name).toSVG());
  }

  // Parts of a section

  function figureCard(figure) {
    figures.set(figure.name, figure);
    const numbers = make("div", { id: `numbers-${figure.name}`, hidden: "" });
    const toggle = make("button", {
      type: "button", "aria-expanded": "false", "aria-controls": numbers.id, "aria-label": `Numbers of ${figure.title}`,
      onclick: () => {
        numbers.hidden = !numbers.hidden;
        toggle.setAttribute("aria-expanded", String(!numbers.hidden));
        fill(figure.name);
      },
    }, "Numbers");
    const latest = () => figures.get(figure.name);
    return make("figure", { class: `card${figure.wide ? " wide" : ""}`, id: `figure-${figure.name}` },
      make("figcaption", {}, make("h3", {}, figure.title), make("p", { class: "quiet" }, figure.caption)),
      make("div", { class: "chart", id: `chart-${figure.name}`, role: "group", "aria-label": `${figure.title}. ${figure.caption}` }),
      make("div", { class: "tools" }, toggle,
        make("button", { type: "button", "aria-label": `${figure.title} as CSV`, onclick: () => save(`${figure.name}.csv`, "text/csv", csv(latest())) }, "CSV"),
        make("button", { type: "button", "aria-label": `${figure.title} as SVG`, onclick: () => svg(figure.name) }, "SVG")),
      numbers);
  }

  function fill(name) {
    const figure = figures.get(name);
    const numbers = byId(`numbers-${name}`);
    if (numbers.hidden) return;
    const columns = figure.columns.map((one) => ({ title: one.title, number: one.form !== "text" }));
    const rows = figure.rows.map((row) => row.map((value, place) => cell(value, figure.columns[place].form)));
    numbers.replaceChildren(table(`Numbers of ${figure.title}`, columns, rows));
  }

  function tableCard(part) {
    const columns = part.headings.map((title, place) => ({ title, number: place >= part.left }));
    return make("div", { class: "card wide" }, make("h3", {}, part.title), table(part.title, columns, part.rows),
      part.notes.length ? make("ul", { class: "beneath" }, ...part.notes.map((note) => make("li", {}, note))) : null);
  }

  function factsCard(part) {
    const width = part.wide ? " wide" : "";
    const list = make("dl", { class: "facts" });
    for (const [name, value] of part.pairs) list.append(make("dt", {}, name), make("dd", {}, value));
    if (!part.folded) return make("div", { class: `card${width}` }, make("h3", {}, part.title), list);
    return make("details", { class: `card${width}` }, make("summary", {}, part.title), list);
  }

  const CARDS = { figure: figureCard, table: tableCard, facts: factsCard };

  // The whole page

  function head(page) {
    document.title = page.title;
    byId("title").textContent = page.title;
    byId("subtitle").textContent = page.subtitle;
    byId("tiles").replaceChildren(...page.tiles.map((tile) => make("div", { class: "tile" },
      make("div", { class: "label" }, tile.label), make("div", { class: "value" }, tile.value), make("div", { class: "quiet" }, tile.note))));
    byId("notes").replaceChildren(...page.notes.map((note) => make("p", { class: "note" }, note)));
    progress(page.progress);
  }

  function progress(progress) {
    const place = byId("live");
    place.hidden = !progress;
    if (!progress) return;
    if (progress.waiting) { place.replaceChildren(make("div", { class: "line", role: "status" }, "Waiting for the run to start.")); return; }
    const done = progress.done ?? progress.finished, all = progress.rounds ?? progress.runs, what = progress.rounds ? "round" : "run";
    const bar = make("progress", { max: String(all), value: String(done), "aria-label": `${what} ${done} of ${all}` });
    const state = progress.ended || done === all ? "Finished" : place.dataset.state || "";
    const line = make("div", { class: "line", role: "status" },
      make("span", { class: `state${state === "Finished" ? " done" : state === "Connection lost" ? " lost" : ""}` }, state || "Running"),
      make("span", {}, `${what} ${done} of ${all}`),
      progress.seconds_left ? make("span", {}, `about ${seconds(progress.seconds_left)} left`) : null,
      progress.budget ? make("span", {}, `uplink budget per client and round: ${bytes(progress.budget.allowed)}, largest use ${bytes(progress.budget.sent)}`) : null);
    const kinds = { "participated": "in", dropped: "out" };
    const clients = (progress.clients || []).map((one) => make("li", { class: kinds[one.state] || "" },
      `${one.name}: ${one.state}`));
    place.replaceChildren(bar, line, ...(clients.length ? [make("ul", { class: "clients", "aria-label": "Clients in the latest round" }, ...clients)] : []));
  }

  const shape = (page) => JSON.stringify(page.sections.map((one) => [one.name, one.parts.map((part) => part.name || part.title)]));
  let shown = "";

  function show(page) {
    head(page);
    if (shape(page) !== shown) build(page);
    else refresh(page);
    shown = shape(page);
  }

  function build(page) {
    views.forEach((view) => view.finalize());
    views.clear();
    figures.clear();
    byId("contents").replaceChildren(...page.sections.filter((one) => one.short).map((one) => make("a", { href: `#${one.name}` }, one.short)));
    byId("sections").replaceChildren(...page.sections.map((one) => make("section", { id: one.name, "aria-labelledby": `head-${one.name}` },
      make("h2", { id: `head-${one.name}` }, one.title),
      make("div", { class: "cards" }, ...one.parts.map((part) => CARDS[part.kind](part))))));
    drawAll();
  }

  function refresh(page) {
    for (const part of page.sections.flatMap((one) => one.parts)) {
      if (part.kind === "figure") {
        const same = JSON.stringify(figures.get(part.name)) === JSON.stringify(part);
        figures.set(part.name, part);
        if (!same) { draw(part.name).catch(complain); fill(part.name); }
      }
    }
    for (const one of page.sections) {
      const cards = byId(one.name).querySelector(".cards");
      one.parts.forEach((part, place) => { if (part.kind !== "figure" && !cards.children[place].open) cards.children[place].replaceWith(CARDS[part.kind](part)); });
    }
  }

  const complain = (problem) => { console.error(String(problem)); };
  const drawAll = () => Promise.all([...figures.keys()].map(draw)).then(() => { document.body.dataset.drawn = "yes"; }, complain);

  function dress(wanted) {
    theme = wanted;
    document.documentElement.dataset.theme = theme;
    byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
  }

  byId("theme").addEventListener("click", () => { dress(theme === "dark" ? "light" : "dark"); drawAll(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => { dress(event.matches ? "dark" : "light"); drawAll(); });
  addEventListener("beforeprint", () => { if (theme === "dark") { dress("light"); drawAll(); } });
  let waiting = 0, width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 150);
  });
  addEventListener("scroll", () => { byId("tip").hidden = true; }, { passive: true });

  // Live: an event announces new data, which is then fetched at most once per second.

  function follow() {
    let due = 0, busy = false, again = false;
    async function fetchPage() {
      if (busy) { again = true; return; }
      busy = true;
      try {
        const answer = await fetch("page.json", { cache: "no-store" });
        if (answer.ok) show(await answer.json());
      } finally {
        busy = false;
        if (again) { again = false; news(); }
      }
    }
    const news = () => { if (!due) due = setTimeout(() => { due = 0; fetchPage().catch(() => state("Connection lost")); }, 1000); };
    const state = (text) => { byId("live").dataset.state = text; const line = byId("live").querySelector(".state"); if (line && line.textContent !== "Finished") line.textContent = text || "Running"; };
    const source = new EventSource("events");
    source.onopen = () => { state(""); news(); };
    source.onerror = () => state("Connection lost");
    for (const kind of ["start", "resume", "extend", "round", "evaluation", "end", "restart"]) source.addEventListener(kind, news);
  }

  dress(theme);
  show(JSON.parse(byId("page").textContent));
  if (document.documentElement.dataset.live === "yes") follow();
})();
