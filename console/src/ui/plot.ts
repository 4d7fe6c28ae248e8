// uPlot for this console: colours from the style sheet, time on the x axis, one unit on the y axis, areas for stacked lines.
// Never fetches, and never knows a page.
import uPlot from "uplot";
import { decades, drawn, lonely, powers, ticks, topOf, type Graph, type Mark, type Threshold } from "../lib/charts";
import { clock, inScale, inUnit, scaleOf } from "../lib/format";
import type { Series } from "../lib/types";

/** The value of a custom property in the current theme: canvases do not support light-dark(). */
export function colour(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

export interface Look {
  small: boolean;
  thresholds: () => Threshold[];
  marks: () => Mark[];
  onzoom: (from_ms: number, to_ms: number) => void;
  oncursor: (index: number | null) => void;
}

/** Cursors of all graphs of the page move together. */
const SYNC = "metrics";

function faded(rgb: string, share: number): string {
  return rgb.replace(/^rgb\(([^)]*)\)$/, `rgba($1, ${share})`);
}

export function plotData(graph: Graph, data: Series): uPlot.AlignedData {
  return [data.times_ms.map((at) => at / 1000), ...drawn(graph, data)] as uPlot.AlignedData;
}

export function makePlot(node: HTMLElement, graph: Graph, data: Series, look: Look): uPlot {
  const text = colour("--muted");
  const grid = { stroke: colour("--grid"), width: 1 };
  const font = `${look.small ? 10 : 11}px ${getComputedStyle(document.body).fontFamily}`;
  const axis: uPlot.Axis = { stroke: text, font, grid, ticks: { ...grid, size: 4 } };
  const series: uPlot.Series[] = [{}];
  graph.lines.forEach((one, index) => {
    const stroke = colour(`--series-${((one.colour ?? index) % 5) + 1}`);
    const dash = (one.colour ?? index) % 10 >= 5 ? { dash: [5, 3] } : {};
    series.push({
      ...dash,
      label: one.label,
      stroke,
      width: look.small ? 1.25 : 1.5,
      // Only values that no line would show.
      points: { show: true, size: look.small ? 3 : 5, fill: stroke, filter: (u, at) => lonely(u.data[at] as (number | null)[]) },
      spanGaps: false,
      ...(graph.stacked && index === 0 ? { fill: faded(stroke, 0.22) } : {}),
      ...(!graph.stacked && graph.lines.length === 1 ? { fill: faded(stroke, 0.12) } : {}),
    });
  });
  const bands: uPlot.Band[] = graph.stacked
    ? graph.lines.slice(1).map((_, index) => ({
        series: [index + 2, index + 1],
        fill: faded(colour(`--series-${((graph.lines[index + 1]!.colour ?? index + 1) % 5) + 1}`), 0.22),
      }))
    : [];
  const options: uPlot.Options = {
    width: node.clientWidth,
    height: node.clientHeight,
    legend: { show: false },
    padding: [8, 8, 0, 0],
    series,
    bands,
    scales: {
      x: { time: true },
      y: graph.log ? { distr: 3, log: 10, range: (_u, min, max) => decades(min, max) } : {
        range: (_u, _min, max) => [0, topOf(graph, max ?? 0, look.thresholds())],
      },
    },
    axes: [
      {
        ...axis,
        space: look.small ? 60 : 80,
        size: look.small ? 22 : 28,
        values: (_u, splits, _index, _space, step) => splits.map((at) => timeMark(at, step)),
      },
      {
        ...axis,
        size: look.small ? 60 : 66,
        space: look.small ? 26 : 34,
        splits: (_u, _index, min, max) => graph.log ? powers(min, max) : ticks(min, max, graph.unit, Math.floor(node.clientHeight / (look.small ? 32 : 44))),
        // A logarithmic axis goes through several units.
        values: (u, splits) => splits.map((value) => graph.log ? inUnit(value, graph.unit) : inScale(value, scaleOf(u.scales.y?.max ?? 0, graph.unit))),
        ...(graph.log ? { filter: (_u: uPlot, splits: number[]) => splits } : {}),
      },
    ],
    cursor: {
      sync: { key: SYNC, setSeries: false },
      drag: { x: !look.small, y: false, setScale: false },
      points: { size: look.small ? 5 : 7 },
      y: false,
      ...(look.small ? { show: true } : {}),
    },
    hooks: {
      draw: [(u) => annotate(u, look)],
      setCursor: [(u) => look.oncursor(u.cursor.idx ?? null)],
      setSelect: [
        (u) => {
          if (u.select.width < 4) return;
          const from = u.posToVal(u.select.left, "x") * 1000;
          const to = u.posToVal(u.select.left + u.select.width, "x") * 1000;
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          look.onzoom(from, to);
        },
      ],
    },
  };
  return new uPlot(options, plotData(graph, data), node);
}

const LEVELS = { info: "--accent", warning: "--warn", critical: "--bad" } as const;

/** Thresholds across, and what happened down. */
function annotate(u: uPlot, look: Look): void {
  const context = u.ctx;
  const { left, top, width, height } = u.bbox;
  const scale = window.devicePixelRatio || 1;
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.lineWidth = scale;
  context.font = `${10 * scale}px ${getComputedStyle(document.body).fontFamily}`;
  for (const one of look.thresholds()) {
    const y = u.valToPos(one.value, "y", true);
    context.strokeStyle = colour(LEVELS[one.severity]);
    context.setLineDash([6 * scale, 4 * scale]);
    line(context, left, y, left + width, y);
  }
  context.setLineDash([2 * scale, 3 * scale]);
  context.strokeStyle = context.fillStyle = colour("--muted");
  // uPlot leaves the alignment of its last axis.
  context.textAlign = "left";
  let free = 0;
  for (const one of look.marks()) {
    const x = u.valToPos(one.at_ms / 1000, "x", true);
    if (x < left || x > left + width) continue;
    line(context, x, top, x, top + height);
    // A word that would lie on the one before is left out: the list below the graph has all.
    if (look.small || x < free) continue;
    const wide = context.measureText(one.word).width;
    // Right of its line, or left of it where it would run out.
    const begin = x + 3 * scale + wide <= left + width ? x + 3 * scale : Math.max(left, x - 3 * scale - wide);
    context.fillText(one.word, begin, top + 11 * scale);
    free = begin + wide + 5 * scale;
  }
  context.restore();
}

function line(context: CanvasRenderingContext2D, x: number, y: number, to_x: number, to_y: number): void {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(to_x, to_y);
  context.stroke();
}

/** The label of a time on the axis: days for long ranges, seconds for short ones. */
export function timeMark(at_s: number, step_s: number): string {
  const [day, clockTime] = clock(at_s * 1000).split(" ") as [string, string];
  if (step_s >= 86_400 || (step_s >= 3600 && clockTime === "00:00:00")) return day.slice(5);
  return step_s >= 60 ? clockTime.slice(0, 5) : clockTime;
}

/** The graph with title and legend, as a picture. */
export async function picture(plot: uPlot, graph: Graph, title: string): Promise<Blob | null> {
  const source = plot.ctx.canvas;
  const scale = window.devicePixelRatio || 1;
  const head = 52 * scale;
  const canvas = document.createElement("canvas");
  canvas.width = source.width;
  canvas.height = source.height + head;
  const context = canvas.getContext("2d")!;
  const family = getComputedStyle(document.body).fontFamily;
  context.fillStyle = colour("--surface");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = colour("--text");
  context.font = `600 ${14 * scale}px ${family}`;
  context.fillText(title, 12 * scale, 20 * scale);
  context.font = `${12 * scale}px ${family}`;
  let x = 12 * scale;
  graph.lines.forEach((one, index) => {
    context.fillStyle = colour(`--series-${((one.colour ?? index) % 5) + 1}`);
    context.fillRect(x, 34 * scale, 10 * scale, 3 * scale);
    context.fillStyle = colour("--muted");
    context.fillText(one.label, x + 14 * scale, 40 * scale);
    x += context.measureText(one.label).width + 30 * scale;
  });
  context.drawImage(source, 0, head);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
