// Draws charts as SVG: lines with bands, and stacked areas. Names and texts are set as text nodes
// or attributes, never as markup, so no name in a file can become an element of the page.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes, parent, text) {
    const node = document.createElementNS(SVG, name);
    for (const key in attributes)
        node.setAttribute(key, attributes[key]);
    if (text !== undefined)
        node.textContent = text;
    if (parent)
        parent.appendChild(node);
    return node;
}

function el(name, attributes, ...children) {
    const node = document.createElement(name);
    for (const key in attributes || {}) {
        if (key.startsWith("on"))
            node.addEventListener(key.slice(2), attributes[key]);
        else if (attributes[key] === true)
            node.setAttribute(key, "");
        else if (attributes[key] !== false && attributes[key] !== undefined && attributes[key] !== null)
            node.setAttribute(key, attributes[key]);
    }
    for (const child of children)
        if (child !== null && child !== undefined)
            node.append(child); // a string becomes a text node
    return node;
}

// ---- numbers ----

// Return `value` with three significant digits, and never with an exponent: toPrecision(3) makes
// "1.00e+3" of 999.6.
function threeDigits(value) {
    return Math.abs(value) >= 999.5 ? value.toFixed(0) : value.toPrecision(3);
}

function shortNumber(value) {
    if (value === null || value === undefined || !isFinite(value))
        return "–";
    const size = Math.abs(value);
    if (size === 0)
        return "0";
    if (size >= 999.5e6)
        return threeDigits(value / 1e9) + " G";
    if (size >= 999.5e3)
        return threeDigits(value / 1e6) + " M";
    if (size >= 1e5)
        return threeDigits(value / 1e3) + " k";
    if (size < 1e-3)
        return value.toExponential(2);
    return String(Number(value.toPrecision(4)));
}

function bytes(value) {
    if (value === null || !isFinite(value))
        return "–";
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let i = 0;
    while (value >= 1024 && i < units.length - 1) {
        value /= 1024;
        i++;
    }
    return (i === 0 ? String(value) : threeDigits(value)) + " " + units[i];
}

function duration(seconds) {
    if (seconds === null || seconds === undefined || !isFinite(seconds))
        return "–";
    if (seconds === 0)
        return "0 s";
    if (seconds < 999.5e-6)
        return threeDigits(seconds * 1e6) + " µs";
    if (seconds < 999.5e-3)
        return threeDigits(seconds * 1e3) + " ms";
    if (seconds < 119.5)
        return seconds.toPrecision(3) + " s";
    // Round before splitting, so that no part shows 60.
    const whole = Math.round(seconds), minutes = Math.round(seconds / 60);
    if (whole < 7200)
        return Math.floor(whole / 60) + " min " + whole % 60 + " s";
    if (minutes < 2880)
        return Math.floor(minutes / 60) + " h " + minutes % 60 + " min";
    return (seconds / 86400).toPrecision(3) + " days";
}

function percent(part) {
    return isFinite(part) ? (100 * part).toFixed(part > 0 && part < 0.1 ? 1 : 0) + " %" : "–";
}

// Return a function that formats the numbers of a column with the same number of decimals, so that
// their decimal points are below each other. The median gets four digits.
function alignedNumbers(values) {
    const sizes = values.filter(v => v !== null && v !== undefined && isFinite(v) && v !== 0).map(Math.abs).sort((a, b) => a - b);
    const middle = sizes.length ? sizes[sizes.length >> 1] : 1;
    if (!sizes.length || middle >= 1e5 || middle < 1e-3)
        return shortNumber;
    const decimals = Math.max(0, Math.min(6, 3 - Math.floor(Math.log10(middle))));
    return v => v === null || v === undefined || !isFinite(v) ? "–" : Math.abs(v) >= 1e5 || v !== 0 && Math.abs(v) < 0.5 * 10 ** -decimals ? shortNumber(v) : v.toFixed(decimals);
}

// Like alignedNumbers(), for durations: if all are short, all are in ms or all in s.
function alignedDurations(values) {
    const known = values.filter(v => v !== null && v !== undefined && isFinite(v) && v > 0), most = Math.max(...known, 0);
    if (most >= 120 || most < 1e-3)
        return duration;
    const [factor, unit] = most < 1 ? [1e3, " ms"] : [1, " s"];
    const decimals = Math.max(0, Math.min(3, 2 - Math.floor(Math.log10(most * factor / 3))));
    return v => v === null || v === undefined || !isFinite(v) ? "–" : (v * factor).toFixed(decimals) + unit;
}

// ---- scales ----

function niceStep(span, count) {
    const rough = span / count, power = 10 ** Math.floor(Math.log10(rough));
    for (const factor of [1, 2, 5, 10])
        if (factor * power >= rough)
            return factor * power;
    return 10 * power;
}

// Return the distance between ticks of an axis of times: a whole number of seconds, minutes or
// hours.
function timeStep(span, count) {
    const steps = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400];
    for (const step of steps)
        if (span / step <= count)
            return step;
    return niceStep(span / 86400, count) * 86400;
}

// Return the ticks of an axis: about `count`, and twice as many if these are fewer than three. `least`
// is the smallest distance between two ticks; 0: any distance.
function ticks(low, high, count, isTime, least) {
    const few = ticksOf(low, high, count, isTime, least || 0);
    return few.length < 3 ? ticksOf(low, high, 2 * count, isTime, least || 0) : few;
}

function ticksOf(low, high, count, isTime, least) {
    const span = high - low;
    if (!(span > 0))
        return [low];
    const step = Math.max(least, isTime && span > 4 ? timeStep(span, count) : niceStep(span, count)), all = [];
    for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step)
        all.push(Math.abs(v) < step * 1e-9 ? 0 : v);
    return all;
}

// Return a function that formats all ticks of an axis in the same way: with the same number of
// decimals, or all as powers of ten.
function tickNumbers(all) {
    const sizes = all.map(Math.abs).filter(v => v > 0), most = Math.max(...sizes, 0), least = Math.min(...sizes);
    if (!sizes.length || most >= 1e5 && least >= 1e3)
        return shortNumber;
    const digits = v => String(Number(v.toPrecision(6)));
    if (least < 1e-3)
        return v => v === 0 ? "0" : Number(v.toPrecision(3)).toExponential();
    if (most >= 100 * least && all.every((v, i) => i === 0 || v / all[i - 1] > 1.2))
        return digits; // the ticks of a log scale, such as 0.01, 0.1, 1
    const decimals = Math.min(6, Math.max(...all.map(v => (digits(v).split(".")[1] || "").length)));
    return v => v.toFixed(decimals);
}

// Like tickNumbers(), for times: all ticks have the same unit.
function tickTimes(all) {
    const most = Math.max(...all), two = n => String(Math.round(n)).padStart(2, "0");
    if (most < 300 && !(all.length > 1 && all.every(v => v % 60 === 0)))
        return v => Number(v.toPrecision(4)) + " s";
    if (all.every(v => v % 3600 === 0) && most >= 7200)
        return v => v / 3600 + " h";
    if (most >= 7200)
        return v => Math.floor(v / 3600) + ":" + two(v % 3600 / 60) + " h";
    return all.every(v => v % 60 === 0) ? v => v / 60 + " min" : v => Math.floor(v / 60) + ":" + two(v % 60) + " min";
}

function logTicks(low, high) {
    const all = [], from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high));
    const factors = to - from <= 1 ? [1, 1.5, 2, 3, 4, 5, 7] : to - from <= 3 ? [1, 2, 5] : [1];
    for (let power = from; power <= to; power++)
        for (const factor of factors) {
            const v = factor * 10 ** power;
            if (v >= low * 0.999999 && v <= high * 1.000001)
                all.push(v);
        }
    return all.length > 12 ? all.filter((v, i) => i % Math.ceil(all.length / 8) === 0) : all;
}

// ---- smoothing ----

// Smooth values with the exponential moving average that TensorBoard shows. `weight` is for a curve
// of at most about 200 points. For a longer curve, the weight is increased, so that a long run is
// smoothed as much as a short one.
function smooth(values, weight) {
    if (weight <= 0)
        return values;
    const w = Math.min(weight, 0.999) ** Math.min(1, 200 / Math.max(values.length, 1));
    let sum = 0, norm = 0;
    return values.map(v => {
        if (v === null)
            return null;
        sum = sum * w + (1 - w) * v;
        norm = norm * w + (1 - w);
        return sum / norm;
    });
}

function quantile(sorted, q) {
    return sorted[Math.min(sorted.length - 1, Math.max(0, Math.floor(q * sorted.length)))];
}

// ---- the frame of a chart ----

const HEIGHT = 230, LEFT = 58, RIGHT = 12, TOP = 10, BOTTOM = 30;

function makeFrame(figure, title, note) {
    const width = Math.max(280, Math.floor(figure.clientWidth || 520));
    const caption = el("figcaption", {}, el("span", {}, title), note ? el("small", {}, note) : null);
    const root = svg("svg", {class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, tabindex: "0",
        role: "img", "aria-label": title + (note ? ", " + note : "")});
    figure.replaceChildren(caption, root);
    return {figure, root, width, right: width - RIGHT, bottom: HEIGHT - BOTTOM};
}

function makeScale(low, high, from, to, isLog) {
    const map = isLog ? Math.log10 : v => v;
    let a = map(low), b = map(high);
    if (!(b > a)) {
        const room = isLog ? 0.1 : Math.abs(a) * 0.05 || 1;
        a -= room;
        b += room;
    }
    return v => from + (map(v) - a) / (b - a) * (to - from);
}

function drawAxes(frame, x, y, options) {
    for (const v of options.yTicks) {
        const at = y(v).toFixed(1);
        svg("line", {class: options.isOver ? "grid over" : "grid", x1: LEFT, x2: frame.right, y1: at, y2: at}, frame.root);
        svg("text", {class: "axis", x: LEFT - 6, y: Number(at) + 4, "text-anchor": "end"}, frame.root,
            options.yFormat(v));
    }
    for (const v of options.xTicks) {
        const at = x(v).toFixed(1);
        svg("text", {class: "axis", x: at, y: frame.bottom + 15, "text-anchor": "middle"}, frame.root,
            options.xFormat(v));
    }
    svg("line", {class: "grid", x1: LEFT, x2: frame.right, y1: frame.bottom, y2: frame.bottom}, frame.root);
    svg("text", {class: "axis", x: frame.right, y: HEIGHT - 2, "text-anchor": "end"}, frame.root, options.xLabel);
}

function nearestIndex(xs, value) {
    let low = 0, high = xs.length - 1;
    while (low < high) {
        const middle = (low + high) >> 1;
        if (xs[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && value - xs[low - 1] < xs[low] - value ? low - 1 : low;
}

// Show the values of the chart at the pointer, after a touch, or at the place that the arrow keys
// select. `rows(value)` returns the position to mark and [[class, name, text], ...]. The position
// is kept when the chart is drawn again.
function addReadout(frame, x, invert, xs, rows) {
    const cross = svg("line", {class: "cross", y1: TOP, y2: frame.bottom, visibility: "hidden"}, frame.root);
    let tip = null;
    function hide() {
        cross.setAttribute("visibility", "hidden");
        if (tip)
            tip.remove();
        tip = null;
        frame.figure.readout = undefined;
    }
    function show(value) {
        const found = rows(value);
        if (!found || !found.lines.length)
            return hide();
        frame.figure.readout = found.at;
        const at = x(found.at);
        cross.setAttribute("x1", at);
        cross.setAttribute("x2", at);
        cross.setAttribute("visibility", "visible");
        if (!tip) {
            tip = el("div", {class: "tip"});
            frame.figure.append(tip);
        }
        tip.replaceChildren(el("div", {}, el("b", {}, found.title)), ...found.lines.map(([kind, name, text]) =>
            el("div", {}, el("span", {}, el("i", {class: "swatch " + kind}), name), el("b", {}, text))));
        const scale = frame.root.clientWidth / frame.width, left = at * scale;
        tip.style.top = "34px";
        if (left > frame.root.clientWidth / 2) {
            tip.style.left = "auto";
            tip.style.right = (frame.root.clientWidth - left + 10) + "px";
        } else {
            tip.style.left = (left + 10) + "px";
            tip.style.right = "auto";
        }
    }
    frame.root.addEventListener("pointermove", event => {
        const box = frame.root.getBoundingClientRect();
        show(invert((event.clientX - box.left) * frame.width / box.width));
    });
    frame.root.addEventListener("pointerleave", hide);
    frame.root.addEventListener("blur", hide);
    frame.root.addEventListener("keydown", event => {
        if (event.key !== "ArrowLeft" && event.key !== "ArrowRight" || !xs.length)
            return;
        event.preventDefault();
        const now = frame.figure.readout;
        const i = now === undefined ? xs.length - 1 : nearestIndex(xs, now) + (event.key === "ArrowLeft" ? -1 : 1);
        show(xs[Math.max(0, Math.min(xs.length - 1, i))]);
    });
    if (frame.figure.readout !== undefined)
        show(frame.figure.readout);
}

// ---- lines ----

function linePath(xs, ys, x, y, low, high) {
    let path = "", pen = false;
    for (let i = 0; i < xs.length; i++) {
        if (ys[i] === null) {
            pen = false;
            continue;
        }
        const v = Math.min(Math.max(ys[i], low), high);
        path += (pen ? "L" : "M") + x(xs[i]).toFixed(1) + " " + y(v).toFixed(1);
        pen = true;
    }
    return path;
}

function bandPath(line, x, y, low, high) {
    let there = "", back = "";
    for (let i = 0; i < line.x.length; i++) {
        if (line.min[i] === null)
            continue;
        const at = x(line.x[i]).toFixed(1);
        there += (there ? "L" : "M") + at + " " + y(Math.min(Math.max(line.max[i], low), high)).toFixed(1);
        back = "L" + at + " " + y(Math.min(Math.max(line.min[i], low), high)).toFixed(1) + back;
    }
    return there ? there + back + "Z" : "";
}

// Return the range of values that the axis shows. If withoutSpikes is true, it is the range of the
// smoothed curves and of almost all points.
function valueRange(lines, isLog, withoutSpikes) {
    const all = [];
    for (const line of lines)
        for (const values of [line.y, line.shown])
            for (const v of values)
                if (v !== null && (!isLog || v > 0))
                    all.push(v);
    if (!all.length)
        return null;
    all.sort((a, b) => a - b);
    let low = all[0], high = all[all.length - 1];
    if (withoutSpikes && all.length > 30) {
        const a = quantile(all, 0.02), b = quantile(all, 0.98), room = (b - a) * 0.35;
        if (high > b + 3 * room)
            high = b + room;
        if (low < a - 3 * room)
            low = a - room;
    }
    if (!isLog) {
        const room = (high - low) * 0.04;
        if (low < 0 || low - room > 0)
            low -= room;
        high += room;
    }
    return {low, high};
}

// Return the lines for which the axis is made: the line of the best run, and the lines that can be
// shown together with it. Other lines are added one by one, as long as each makes the range at most
// three times as large.
function nearLines(lines, isLog) {
    const map = isLog ? Math.log10 : v => v, ranges = new Map();
    for (const line of lines) {
        const values = line.shown.filter(v => v !== null && (!isLog || v > 0)).map(map).sort((a, b) => a - b);
        if (values.length)
            ranges.set(line, [quantile(values, 0.05), quantile(values, 0.95)]);
    }
    const known = [...ranges.keys()], middle = [...known].sort((a, b) => ranges.get(a)[0] - ranges.get(b)[0])[known.length >> 1];
    const first = known.find(line => line.isBest) || middle;
    if (!first || known.length < 2)
        return lines;
    let [low, high] = ranges.get(first);
    const near = [first], room = isLog ? 0.05 : 0.02 * Math.max(Math.abs(low), Math.abs(high));
    const grown = line => [Math.min(low, ranges.get(line)[0]), Math.max(high, ranges.get(line)[1])];
    const span = line => grown(line)[1] - grown(line)[0];
    for (let rest = known.filter(line => line !== first); rest.length;) {
        const next = rest.reduce((a, b) => span(a) <= span(b) ? a : b);
        if (span(next) > 3 * Math.max(high - low, room))
            break;
        [low, high] = grown(next);
        near.push(next);
        rest = rest.filter(line => line !== next);
    }
    return lines.filter(line => near.includes(line) || !ranges.has(line));
}

// Print the names of the lines that are outside the range of the axis, with an arrow, at the upper
// or lower edge.
function drawFarLines(frame, far, range, format) {
    let above = 0, below = 0;
    for (const line of far) {
        const values = line.shown.filter(v => v !== null), low = Math.min(...values), high = Math.max(...values), isAbove = high > range.high;
        const at = isAbove ? TOP + 10 + 14 * above++ : frame.bottom - 6 - 14 * below++;
        const name = line.name.length > 28 ? "…" + line.name.slice(-27) : line.name;
        const group = svg("g", {class: line.kind}, frame.root);
        const text = format(low) === format(high) ? format(low) : `${format(low)} to ${format(high)}`;
        svg("text", {class: "axis far", x: frame.right - 4, y: at, "text-anchor": "end"}, group, `${isAbove ? "↑" : "↓"} ${name}: ${text}`);
    }
}

function shownTick(v) {
    return Math.abs(v) >= 1e5 ? shortNumber(v) : String(Number(v.toPrecision(6)));
}

// lines: [{name, kind, dash, isBest, x: [], y: [], min, max, dots}]; options: {title, note, isTime,
// clock, xLabel, isLog, smoothing, withoutSpikes, withoutFar, format, fromZero}
function drawLines(figure, lines, options) {
    const frame = makeFrame(figure, options.title, options.note);
    lines = lines.filter(line => line.x.length);
    for (const line of lines)
        line.shown = line.dots ? line.y : smooth(line.y, options.smoothing || 0);
    const near = options.withoutFar ? nearLines(lines, options.isLog) : lines, far = lines.filter(line => !near.includes(line));
    const range = valueRange(near, options.isLog, options.withoutSpikes);
    if (!range) {
        svg("text", {class: "axis", x: frame.width / 2, y: HEIGHT / 2, "text-anchor": "middle"}, frame.root,
            options.isLog && lines.length ? "nothing above 0 to show on a log scale" : "no values yet");
        return;
    }
    if (options.fromZero && !options.isLog)
        range.low = Math.min(0, range.low);
    const first = Math.min(...lines.map(line => line.x[0]));
    const last = Math.max(...lines.map(line => line.x[line.x.length - 1]));
    const x = makeScale(first, last, LEFT, frame.right, false);
    const y = makeScale(range.low, range.high, frame.bottom, TOP, options.isLog);
    const format = options.format || shortNumber;
    const yTicks = options.isLog ? logTicks(range.low, range.high) : ticks(range.low, range.high, 5);
    const xTicks = ticks(first, last, Math.max(3, Math.floor(frame.width / 90)), options.isTime, options.isTime ? 0 : 1);
    drawAxes(frame, x, y, {
        yTicks, xTicks, yFormat: options.format || tickNumbers(yTicks), xFormat: options.isTime ? tickTimes(xTicks) : shownTick,
        xLabel: options.xLabel,
    });
    drawFarLines(frame, far, range, format);
    // The best runs are drawn last, so no other run covers them.
    for (const line of [...near].sort((a, b) => Number(Boolean(a.isBest)) - Number(Boolean(b.isBest)))) {
        const group = svg("g", {class: line.kind}, frame.root);
        const clean = values => options.isLog ? values.map(v => v !== null && v > 0 ? v : null) : values;
        if (line.min)
            svg("path", {class: "band", d: bandPath({x: line.x, min: clean(line.min), max: clean(line.max)}, x, y,
                range.low, range.high)}, group);
        if (!line.dots && options.smoothing > 0 && !line.min)
            svg("path", {class: "raw", d: linePath(line.x, clean(line.y), x, y, range.low, range.high)}, group);
        svg("path", {class: "curve " + (line.dash || ""),
            d: linePath(line.x, clean(line.shown), x, y, range.low, range.high)}, group);
        if (line.dots || line.x.length === 1)
            for (let i = 0; i < line.x.length && line.x.length <= 120; i++)
                if (line.y[i] !== null && (!options.isLog || line.y[i] > 0))
                    svg("circle", {class: "dot", r: 3, cx: x(line.x[i]).toFixed(1),
                        cy: y(Math.min(Math.max(line.y[i], range.low), range.high)).toFixed(1)}, group);
    }
    const invert = at => first + (at - LEFT) / (frame.right - LEFT) * (last - first);
    const longest = lines.reduce((a, b) => a.x.length >= b.x.length ? a : b).x;
    addReadout(frame, x, invert, longest, value => {
        const at = longest[nearestIndex(longest, value)];
        const found = lines.map(line => {
            const i = nearestIndex(line.x, at);
            return line.x[i] < first || Math.abs(line.x[i] - at) > (last - first) * 0.1 ? null
                : [line.kind, line.name, format(line.shown[i])];
        }).filter(row => row);
        return {at, title: options.isTime ? (options.clock ? clock(at) : duration(at)) : "step " + at, lines: found};
    });
}

function clock(seconds) {
    const date = new Date(seconds * 1000), two = n => String(n).padStart(2, "0");
    return two(date.getHours()) + ":" + two(date.getMinutes()) + ":" + two(date.getSeconds());
}

// ---- stacked areas ----

// layers: [{name, kind, y: []}] from the bottom to the top, all with the x values `xs`
function drawStack(figure, xs, layers, options) {
    const frame = makeFrame(figure, options.title, options.note);
    if (!xs.length) {
        svg("text", {class: "axis", x: frame.width / 2, y: HEIGHT / 2, "text-anchor": "middle"}, frame.root,
            "no values yet");
        return;
    }
    // A single sample is drawn as an area, too, so give it a width.
    const wide = xs.length === 1 ? [xs[0] - 0.5, xs[0] + 0.5] : xs;
    const value = (layer, i) => layer.y[xs.length === 1 ? 0 : i] || 0;
    let highest = options.most || 0;
    for (let i = 0; i < wide.length; i++)
        highest = Math.max(highest, layers.reduce((sum, layer) => sum + value(layer, i), 0));
    highest = highest || 1;
    const x = makeScale(wide[0], wide[wide.length - 1], LEFT, frame.right, false);
    const y = makeScale(0, highest, frame.bottom, TOP, false);
    const below = wide.map(() => 0);
    for (const layer of layers) {
        let there = "", back = "";
        for (let i = 0; i < wide.length; i++) {
            const at = x(wide[i]).toFixed(1);
            back = "L" + at + " " + y(below[i]).toFixed(1) + back;
            below[i] += value(layer, i);
            there += (i ? "L" : "M") + at + " " + y(below[i]).toFixed(1);
        }
        svg("path", {class: "area " + layer.kind, d: there + back + "Z"}, frame.root);
    }
    drawAxes(frame, x, y, {
        yTicks: options.yTicks || ticks(0, highest, 4), yFormat: options.format,
        xTicks: ticks(xs[0], xs[xs.length - 1], Math.max(3, Math.floor(frame.width / 90)), false, 1),
        xFormat: shownTick, xLabel: "step", isOver: true,
    });
    const invert = at => wide[0] + (at - LEFT) / (frame.right - LEFT) * (wide[wide.length - 1] - wide[0]);
    addReadout(frame, x, invert, xs, at => {
        const i = nearestIndex(xs, at);
        return {at: xs[i], title: "step " + xs[i],
            lines: [...layers].reverse().map(layer => [layer.kind, layer.name, options.format(layer.y[i] || 0)])};
    });
    const key = el("div", {class: "key"});
    for (const layer of layers)
        if (layer.y.some(v => v > 0))
            key.append(el("span", {}, el("i", {class: "swatch " + layer.kind}), layer.name));
    figure.append(key);
}
