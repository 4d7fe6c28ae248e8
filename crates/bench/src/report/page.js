"use strict";
(() => {
  const report = JSON.parse(document.getElementById("data").textContent);
  const colours = ["var(--c0)", "var(--c1)", "var(--c2)", "var(--c3)"];

  // ---- elements
  const element = (name, attributes = {}, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const shape = (name, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };

  // ---- numbers
  const short = (value, unit) => {
    if (value === null || value === undefined) return "–";
    if (unit === "B") {
      const units = ["B", "kB", "MB", "GB", "TB"];
      let at = 0;
      while (value >= 1000 && at < 4) { value /= 1000; at++; }
      return trim(value) + " " + units[at];
    }
    const size = Math.abs(value);
    if (size >= 1e6) return trim(value / 1e6) + "M" + (unit ? " " + unit : "");
    if (size >= 1e4) return trim(value / 1e3) + "k" + (unit ? " " + unit : "");
    return trim(value) + (unit ? " " + unit : "");
  };
  const trim = (value) => {
    const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : Math.abs(value) >= 1 ? 2 : 3;
    return Number(value.toFixed(digits)).toString();
  };
  // Ticks at 1, 2 or 5 times a power of ten.
  const ticks = (low, high, count) => {
    const raw = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw * 0.999);
    const list = [];
    for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) list.push(Number(at.toPrecision(12)));
    return list;
  };

  // ---- a plot of lines over one axis
  // lines: [{ name, x, y, dashed, colour, points }]
  // With `log`, values over more than a decade get a logarithmic axis: an average beside its p99.99.
  const plot = ({ title, unit, lines, xUnit, xLabels, to, area, log }) => {
    const W = 520, H = 210, L = 58, R = 14, T = 8, B = 26;
    lines = lines.filter((line) => line.y.some((y) => y !== null && y !== undefined));
    if (!lines.length) return null;
    const xs = lines.flatMap((line) => line.x);
    const ys = lines.flatMap((line) => line.y).filter((y) => y !== null && y !== undefined);
    const x0 = Math.min(0, ...xs), x1 = Math.max(...xs, x0 + 1e-9);
    const high = Math.max(...ys, 1e-9), low = Math.min(...ys.filter((y) => y > 0), high);
    const decades = log && high / low > 10;
    const y0 = decades ? 10 ** Math.floor(Math.log10(low)) : 0;
    const top = to ?? (decades ? 10 ** Math.ceil(Math.log10(high * 1.001)) : high * 1.06);
    const yTicks = decades
      ? Array.from({ length: Math.round(Math.log10(top / y0)) + 1 }, (_, index) => Number((y0 * 10 ** index).toPrecision(6)))
      : ticks(y0, top, 4);
    const y1 = to ?? Math.max(top, yTicks[yTicks.length - 1]);
    const X = (x) => L + (W - L - R) * (x - x0) / (x1 - x0);
    const height = (y) => decades ? Math.log10(Math.max(y, y0) / y0) / Math.log10(y1 / y0) : (y - y0) / (y1 - y0);
    const Y = (y) => T + (H - T - B) * (1 - height(y));
    const svg = shape("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": title });
    for (const at of yTicks) {
      svg.append(shape("line", { x1: L, x2: W - R, y1: Y(at), y2: Y(at), stroke: "var(--grid)" }));
      svg.append(shape("text", { x: L - 8, y: Y(at) + 4, "text-anchor": "end" }, short(at, unit)));
    }
    const xTicks = xLabels ? lines[0].x : ticks(x0, x1, 6);
    xTicks.forEach((at, index) => {
      const crowded = xLabels && index > 0 && X(at) - X(xTicks[index - 1]) < 30;
      if (!crowded) svg.append(shape("text", { x: X(at), y: H - 8, "text-anchor": "middle" }, xLabels ? trim(at) + " %" : at + (xUnit ?? "")));
    });
    svg.append(shape("line", { x1: L, x2: W - R, y1: Y(y0), y2: Y(y0), stroke: "var(--line)" }));
    lines.forEach((line, index) => {
      const colour = line.colour ?? colours[index % colours.length];
      line.colour = colour;
      let path = "", open = false;
      line.x.forEach((x, i) => {
        const y = line.y[i];
        if (y === null || y === undefined) { open = false; return; }
        path += `${open ? "L" : "M"}${X(x).toFixed(1)},${Y(Math.min(y, y1)).toFixed(1)}`;
        open = true;
      });
      if (area && index === 0 && !line.y.includes(null) && line.x.length > 1) {
        const fill = `${path}L${X(line.x[line.x.length - 1])},${Y(y0)}L${X(line.x[0])},${Y(y0)}Z`;
        svg.append(shape("path", { d: fill, fill: colour, opacity: 0.1 }));
      }
      svg.append(shape("path", {
        d: path, fill: "none", stroke: colour, "stroke-width": 1.8, "stroke-linejoin": "round", "stroke-linecap": "round",
        ...(line.dashed ? { "stroke-dasharray": "5 4" } : {}),
      }));
      if (xLabels || line.x.length <= 2) {
        line.x.forEach((x, i) => line.y[i] != null && svg.append(shape("circle", { cx: X(x), cy: Y(line.y[i]), r: 3.2, fill: colour })));
      }
    });
    // ---- what is under the pointer
    const cursor = shape("line", { y1: T, y2: H - B, stroke: "var(--faint)", "stroke-dasharray": "2 3", visibility: "hidden" });
    svg.append(cursor);
    const legend = element("div", { class: "legend" });
    const values = lines.map((line) => {
      const value = element("b");
      const mark = element("i", { style: `background:${line.colour}` });
      legend.append(element("span", {}, mark, `${line.name} `, value));
      return value;
    });
    const where = element("span");
    legend.append(where);
    const show = (event) => {
      const box = svg.getBoundingClientRect();
      const x = x0 + (x1 - x0) * (((event.clientX - box.left) / box.width) * W - L) / (W - L - R);
      let nearest = 0;
      lines.forEach((line, index) => {
        let best = 0;
        line.x.forEach((at, i) => { if (Math.abs(at - x) < Math.abs(line.x[best] - x)) best = i; });
        values[index].textContent = short(line.y[best], unit);
        if (index === 0) nearest = best;
      });
      const at = lines[0].x[nearest];
      where.textContent = xLabels ? `at ${xLabels[nearest]}` : `at ${trim(at)} s`;
      cursor.setAttribute("x1", X(at));
      cursor.setAttribute("x2", X(at));
      cursor.setAttribute("visibility", "visible");
    };
    const hide = () => {
      values.forEach((value) => { value.textContent = ""; });
      where.textContent = "";
      cursor.setAttribute("visibility", "hidden");
    };
    svg.addEventListener("pointermove", show);
    svg.addEventListener("pointerleave", hide);
    return element("div", { class: "card plot" }, element("h3", {}, title), legend, svg);
  };

  const plots = (...all) => element("div", { class: "plots" }, ...all.filter(Boolean));

  const tableOf = (table) => {
    const head = element("tr", {}, ...table.head.map((cell) => element("th", {}, cell)));
    const rows = table.rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell))));
    return element("div", { class: "card" }, element("h3", {}, table.title),
      element("div", { class: "scroll" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows))));
  };

  const phaseOf = (phase) => {
    const several = phase.loads.length > 1;
    const line = (load, field, name) => ({ name: name ?? (several ? load.name : "all"), x: load.second, y: load[field] });
    const seconds = { xUnit: " s" };
    const throughput = plot({
      title: "Throughput, ops/s", ...seconds, area: !several,
      lines: phase.loads.map((load) => line(load, "ops", several ? load.name : "ops/s")),
    });
    const latency = several
      ? plot({ title: "Average latency", unit: "ms", log: true, ...seconds, lines: phase.loads.map((load) => line(load, "latency_ms_avg")) })
      : plot({
          title: "Latency", unit: "ms", log: true, ...seconds,
          lines: [["latency_ms_avg", "average"], ["latency_ms_p99", "p99"], ["latency_ms_p9999", "p99.99"]]
            .map(([field, name]) => line(phase.loads[0], field, name)),
        });
    const tail = several && plot({
      title: "p99 latency", unit: "ms", log: true, ...seconds, lines: phase.loads.map((load) => line(load, "latency_ms_p99")),
    });
    const server = phase.server;
    const own = server && server.second.length > 1 ? server : null;
    const has = own && own.has_flash;
    const at = (y, name, more) => ({ name, x: own.second, y, ...more });
    const ram = own && plot({
      title: "RAM of the server's process", unit: "B", ...seconds, area: true,
      lines: [at(own.resident, "resident", { colour: "var(--c1)" }),
        ...(own.ram_limit.some((limit) => limit > 0) ? [at(own.ram_limit, "RAM limit", { dashed: true, colour: "var(--limit)" })] : [])],
    });
    const hits = has && plot({
      title: "Reads served from RAM", unit: "%", ...seconds, to: 100, lines: [at(own.hit_percent, "RAM hit ratio", { colour: "var(--c2)" })],
    });
    const reads = has && plot({
      title: "Flash reads per second", ...seconds, lines: [at(own.flash_reads, "reads/s", { colour: "var(--c3)" })],
    });
    const writes = has && plot({
      title: "Flash writes, MB/s", ...seconds, lines: [at(own.flash_write_mb, "MB/s", { colour: "var(--c3)" })],
    });
    const commands = element("details", {}, element("summary", {}, "Exact command"), element("pre", {}, phase.commands.join("\n\n")));
    return element("div", { class: "phase" }, element("h3", {}, phase.name), plots(throughput, latency, tail, hits, ram, reads, writes), commands);
  };

  const sweepOf = (sweep) => {
    const lines = (field) => sweep.lines.map((line) => ({ name: line.name, x: sweep.percent, y: line[field] }));
    const options = { xLabels: sweep.label.map((label, index) => `${label} (${trim(sweep.percent[index])} % of the keys)`) };
    return element("section", {}, element("h2", {}, "By working set"), plots(
      plot({ title: "Throughput, ops/s", ...options, lines: lines("ops") }),
      plot({ title: "Average latency", unit: "ms", ...options, lines: lines("latency_ms_avg") }),
      plot({ title: "p99 latency", unit: "ms", ...options, lines: lines("latency_ms_p99") }),
      plot({ title: "Reads served from RAM", unit: "%", to: 100, ...options, lines: lines("hit_percent").slice(0, 1) }),
    ));
  };

  // ---- the page
  const themes = ["", "light", "dark"];
  const button = element("button", { type: "button", title: "Light, dark, or as the system says" }, "Theme");
  button.addEventListener("click", () => {
    const root = document.documentElement;
    const next = themes[(themes.indexOf(root.dataset.theme ?? "") + 1) % themes.length];
    if (next) root.dataset.theme = next; else delete root.dataset.theme;
    button.textContent = next ? `Theme: ${next}` : "Theme";
  });
  const page = document.getElementById("page");
  page.append(element("header", {}, element("div", {}, element("h1", {}, report.title), element("p", { class: "sub" }, report.subtitle)), button));
  if (report.tiles.length) {
    page.append(element("div", { class: "tiles" }, ...report.tiles.map((tile) => element("div", { class: "tile" },
      element("b", {}, tile.value), element("span", {}, tile.label), element("span", { class: "beside" }, tile.beside)))));
  }
  if (report.sweep) page.append(sweepOf(report.sweep));
  if (report.tables.length) page.append(element("section", {}, element("h2", {}, "Result"), ...report.tables.map(tableOf)));
  if (report.notes.length) {
    page.append(element("section", {}, element("h2", {}, "To judge these figures"),
      element("div", { class: "card" }, element("ul", {}, ...report.notes.map((note) => element("li", {}, note))))));
  }
  // The measured run is what the reader looks for first.
  const phases = report.phases.slice().reverse();
  if (phases.length) page.append(element("section", {}, element("h2", {}, "Over time"), ...phases.map(phaseOf)));
  if (report.facts.length) {
    const rows = report.facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
    page.append(element("section", {}, element("h2", {}, "Machine and server"), element("div", { class: "card" }, element("dl", {}, ...rows))));
  }
})();
