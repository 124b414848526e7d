// Finds out from the numbers of several runs which run was best, which was slow and why, and what
// went wrong. Each finding is {kind, run, parts, why}. `parts` are texts and runs; a text in an
// array, [text], is bold, and the page shows a run as a link with its name.
"use strict";

// Return the time of a step and its parts, in seconds, as means over the ranks; null if the run has
// no rank files.
function splitOf(run) {
    const ranks = run.ranks.filter(r => r[1] > 0);
    if (!ranks.length)
        return null;
    const sum = i => ranks.reduce((total, r) => total + r[i], 0);
    const steps = sum(1), seconds = sum(2), wait = sum(3), data = sum(4), noCore = sum(5), stopped = sum(6);
    return {step: seconds / steps, wait: wait / steps, data: data / steps, noCore: noCore / steps, stopped: stopped / steps,
        compute: Math.max(0, seconds - wait - data - noCore - stopped) / steps};
}

// Return the parts of a step as text. The times without a core and stopped are left out if they are
// almost 0.
function splitText(split) {
    const part = (seconds, text) => `${percent(seconds / split.step)} ${text}`;
    return [part(split.compute, "computing"), split.noCore > 0.01 * split.step ? part(split.noCore, "without a core") : "",
        split.stopped > 0.01 * split.step ? part(split.stopped, "stopped") : "",
        part(split.wait, "waiting for other ranks"), part(split.data, "waiting for data")].filter(text => text).join(", ");
}

// Return the rank for which the other ranks wait, because it is busy, without a core, or stopped
// for longer than the others; null if there is no such rank.
function stragglerOf(run) {
    const ranks = run.ranks.filter(r => r[1] > 0).map(r => ({rank: r[0], step: r[2] / r[1], wait: r[3] / r[1], data: r[4] / r[1],
        own: (r[2] - r[3] - r[4]) / r[1], noCore: r[5] / r[1], stopped: (r[6] || 0) / r[1]}));
    if (ranks.length < 2)
        return null;
    const busy = r => r.own + r.data;
    const slowest = ranks.reduce((a, b) => busy(a) >= busy(b) ? a : b);
    const others = ranks.filter(r => r !== slowest);
    const mean = of => others.reduce((sum, r) => sum + of(r), 0) / others.length;
    const wait = mean(r => r.wait), more = busy(slowest) - mean(busy);
    if (!(busy(slowest) > 1.2 * mean(busy)) || !(wait > 0.15 * slowest.step))
        return null;
    const cause = [["stopped", slowest.stopped - mean(r => r.stopped)], ["core", slowest.noCore - mean(r => r.noCore)],
        ["data", slowest.data - mean(r => r.data)]].find(([, seconds]) => seconds > 0.5 * more);
    return {rank: slowest.rank, times: busy(slowest) / mean(busy), wait: wait / slowest.step, cause: cause ? cause[0] : "compute",
        stopped: slowest.stopped / slowest.step, noCore: slowest.noCore / slowest.step, data: slowest.data / slowest.step};
}

// Return the rank that is stopped longest, if it is stopped for clearly longer than the others;
// null if there is no such rank. The other ranks wait for it even if their own work takes as long.
function stoppedOf(run) {
    const ranks = run.ranks.filter(r => r[1] > 0 && r[6] !== null).map(r => ({rank: r[0], stopped: r[6] / r[2]}));
    if (!ranks.length)
        return null;
    const most = ranks.reduce((a, b) => a.stopped >= b.stopped ? a : b), others = ranks.filter(r => r !== most);
    const mean = others.reduce((sum, r) => sum + r.stopped, 0) / (others.length || 1);
    return most.stopped > 0.1 && most.stopped > 2 * mean ? most : null;
}

const STOPPED = "something stops its process (a signal, a debugger, a container that is paused), or it waits for its disk or for memory.";

// Return a sentence that says why the rank is slow.
function stragglerCause(straggler) {
    switch (straggler.cause) {
    case "stopped":
        return `It neither ran nor was ready to run in ${percent(straggler.stopped)} of a step: ` + STOPPED;
    case "core":
        return `It had no core in ${percent(straggler.noCore)} of a step: other programs run on its cores, or a container's quota is used up.`;
    case "data":
        return `It waits for data in ${percent(straggler.data)} of a step: look at the disk of its host, and at --num-workers.`;
    default:
        return "Look at the clock of its cores, and at the sizes of its batches.";
    }
}

// Return by which loss the runs are compared: the validation loss if several runs have one,
// otherwise the training loss.
function rankBy(runs) {
    const validated = runs.filter(run => run.best_loss !== null).length;
    if (validated === runs.length || validated > 1)
        return {name: "validation loss", curve: "eval/loss", of: run => run.best_loss, at: run => run.best_step};
    return {name: "training loss", curve: "train/loss", of: lastLoss, at: run => run.step};
}

// Return the mean training loss over the last twentieth of a run.
function lastLoss(run) {
    const curve = run.curves && run.curves["train/loss"];
    if (!curve || !curve.mean.length)
        return null;
    const tail = curve.mean.slice(-Math.max(1, Math.ceil(curve.mean.length / 20))).filter(v => v !== null);
    return tail.length ? tail.reduce((a, b) => a + b, 0) / tail.length : null;
}

function settingsOf(run) {
    return run.description && run.description.config || {};
}

// Options that say where files are or how a run is called. They differ between any two runs, so
// they are not compared.
const PLACES = new Set(["output", "metrics", "logging-dir", "run-name", "project", "checkpoint-dir", "profile", "plot",
    "resume", "checkpoint", "overwrite-output", "dashboard", "dashboard-port", "dashboard-stays", "rank-metrics",
    "tracker-command", "report-to", "with-tracking", "offload-dir", "config"]);

// Return the settings that differ between the runs: [[key, [value of each run]], ...]. The number
// of ranks counts as a setting.
function differingSettings(runs) {
    const known = runs.filter(run => run.description);
    if (known.length < 2)
        return [];
    const keys = new Set(["ranks"]);
    for (const run of known)
        for (const key in settingsOf(run))
            keys.add(key);
    const value = (run, key) => key === "ranks" ? String(run.world_size ?? "–") : settingsOf(run)[key] ?? "–";
    return [...keys].filter(key => !PLACES.has(key) && new Set(known.map(run => value(run, key))).size > 1)
        .map(key => [key, runs.map(run => run.description ? value(run, key) : "?")]);
}

// Settings that change how long a step takes.
const COSTLY = ["ranks", "batch-size", "gradient-accumulation-steps", "max-source-length", "max-target-length",
    "max-seq-length", "threads-per-rank", "num-workers", "prefetch", "activation-checkpointing",
    "activation-checkpointing-every", "activation-checkpointing-kind", "activation-offload", "cpu-offload",
    "offload-params", "param-dtype", "reduce-dtype", "sharding-strategy", "auto-wrap-policy", "model", "data",
    "device", "devices", "isa", "backward-prefetch", "forward-prefetch", "limit-all-gathers", "optimizer",
    "async-save", "save-steps", "evaluation-steps", "dropout", "group-by-length", "packing"];

function costlyDifference(slow, fast) {
    const all = differingSettings([slow, fast]).filter(([key]) => COSTLY.includes(key));
    return all.slice(0, 4).map(([key, [a, b]]) => `${key} ${a} (there ${b})`).join(", ");
}

function timeOutside(run) {
    const whole = run.seconds + run.validation_s + run.save_s;
    return whole > 0 ? {validation: run.validation_s / whole, save: run.save_s / whole} : {validation: 0, save: 0};
}

// Return sentences that say why a step of `slow` takes longer than a step of `fast`. If the steps
// of the two runs have different numbers of tokens, compare the times for the same number of
// tokens.
function reasons(slow, fast) {
    const a = splitOf(slow), b = splitOf(fast), found = [];
    if (!a)
        return ["It wrote nothing about its ranks, so the page cannot say why."];
    const scale = slow.tokens_per_step > 0 && fast.tokens_per_step > 0 ? slow.tokens_per_step / fast.tokens_per_step : 1;
    const straggler = stragglerOf(slow), stopped = stoppedOf(slow), more = {};
    for (const part of ["wait", "data", "compute", "noCore", "stopped"])
        more[part] = Math.max(0, a[part] - (b ? b[part] * scale : part === "compute" ? a[part] : 0));
    const whole = more.wait + more.data + more.compute + more.noCore + more.stopped || 1;
    found.push(`A step takes ${duration(a.step)}: ${splitText(a)}` + (b ? ` (${fast.name}: ${duration(b.step)}: ${splitText(b)}).` : "."));
    const crowded = more.noCore > 0.3 * whole && a.noCore > 0.1 * a.step;
    if (crowded)
        found.push(`It was ready to run but had no core for ${duration(a.noCore)} of a step` + (b ? ` (${fast.name}: ${duration(b.noCore)})` : "")
            + ": other programs run on its cores, it has more threads than cores, or a container's quota is used up.");
    if (straggler)
        found.push(`The others wait for rank ${straggler.rank} in ${percent(straggler.wait)} of a step: it is busy `
            + `${straggler.times.toPrecision(2)} times as long. ` + stragglerCause(straggler));
    else if (stopped)
        found.push((slow.ranks.length > 1 ? `The others wait for rank ${stopped.rank}, which` : "It")
            + ` neither ran nor was ready to run in ${percent(stopped.stopped)} of a step: ` + STOPPED);
    else if (more.wait > 0.4 * whole && slow.ranks.length > 1)
        found.push("The ranks wait for each other longer than there, though none of them is busy longer: "
            + (crowded ? "now this one and now that one has no core." : "the sizes of their batches differ, or the network between them is slow."));
    if (more.data > 0.3 * whole)
        found.push("It waits for its data: more --num-workers, or token files made by 'fsdp tokenize', help.");
    if (more.compute > 0.3 * whole && !(straggler && more.compute < 0.6 * whole))
        found.push(computeReason(slow, fast, b ? a.compute / (b.compute * scale) : 0, scale));
    return found;
}

// Return the reason why `slow` computes longer: different settings, or another host. The page does
// not know other reasons.
function computeReason(slow, fast, times, scale) {
    const settings = costlyDifference(slow, fast), moved = slow.host && fast.host && slow.host !== fast.host;
    return `It computes ${times > 0 && isFinite(times) ? times.toPrecision(2) + " times as long" : "long"}`
        + (scale < 0.8 || scale > 1.25 ? " for as many tokens" : "")
        + (settings ? ": " + settings + "." : moved ? `: it ran on ${slow.host}, ${fast.name} on ${fast.host}.`
            : "; no setting that costs time differs, and the files do not say why.");
}

// Return {from, to} if the loss ends clearly higher than it began, or clearly higher than its
// lowest stretch, otherwise null. "Clearly" means by more than the noise of the loss.
function riseOf(values) {
    if (values.length < 20)
        return null;
    const width = Math.max(8, Math.floor(values.length / 10));
    const mean = part => part.reduce((a, b) => a + b, 0) / part.length;
    const last = values.slice(-width), now = mean(last);
    const noise = Math.sqrt(mean(last.map(v => (v - now) ** 2)));
    let least = Infinity;
    for (let i = 0; i + width <= values.length; i += Math.ceil(width / 2))
        least = Math.min(least, mean(values.slice(i, i + width)));
    if (now > 1.3 * least && now - least > 4 * noise / Math.sqrt(width) + 0.05)
        return {from: least, to: now};
    return now > 1.3 * values[0] && now - values[0] > 3 * noise ? {from: values[0], to: now} : null;
}

function counted(n, one, several) {
    return `${n} ${n === 1 ? one : several}`;
}

function troubles(run) {
    const found = [];
    if (run.state === "failed")
        found.push({kind: "bad", run, parts: [run, " failed at step " + run.step + "."], why: [run.message || ""]});
    else if (run.state === "gone")
        found.push({kind: "bad", run, parts: [run, " has vanished after step " + run.step + ": its process is not on this host any more, and it did not say that it ended."],
            why: [(run.copied ? "This folder is a copy, so the run may go on where the folder was copied from" : "It may go on in another container, or on another host")
                + ` that is named ${run.host}, too.`]});
    else if (run.state === "silent" && run.host && !run.here)
        found.push({kind: "slow", run, parts: [run, ` is silent after step ${run.step}: it has vanished, or goes on on another host (${run.host}).`],
            why: ["This host cannot see the processes of that one."
                + (run.copied ? " This folder is a copy: what the run has written since is not in it." : "")]});
    const loss = run.curves && run.curves["train/loss"];
    if (loss && loss.not_finite > 0)
        found.push({kind: "bad", run, parts: [run, ": the loss of " + counted(loss.not_finite, "step is", "steps are") + " not a number."], why: []});
    const risen = loss ? riseOf(loss.mean.filter(v => v !== null)) : null;
    if (risen)
        found.push({kind: "bad", run, parts: [run, ": the training loss has risen from " + shortNumber(risen.from) + " to " + shortNumber(risen.to) + "."],
            why: ["A smaller learning rate, a longer warm-up or --max-grad-norm may help."]});
    const outside = timeOutside(run);
    if (outside.validation > 0.3)
        found.push({kind: "slow", run, parts: [run, " spends " + percent(outside.validation) + " of its time in " + counted(run.validations, "validation", "validations") + "."], why: []});
    if (outside.save > 0.2)
        found.push({kind: "slow", run, parts: [run, " spends " + percent(outside.save) + " of its time saving " + counted(run.saves, "checkpoint", "checkpoints") + "."],
            why: ["--async-save writes them while training goes on; --save-steps says how often."]});
    if (run.bad_lines > 0)
        found.push({kind: "bad", run, parts: [run, ": " + counted(run.bad_lines, "line of its file of metrics is", "lines of its file of metrics are") + " damaged and left out."], why: []});
    const straggler = stragglerOf(run);
    if (straggler)
        found.push({kind: "slow", run, straggler: true, parts: [run, `: rank ${straggler.rank} is busy ${straggler.times.toPrecision(2)} times as long as the others, `
            + `which wait for it ${percent(straggler.wait)} of a step.`], why: [stragglerCause(straggler)]});
    const stopped = straggler ? null : stoppedOf(run);
    if (stopped)
        found.push({kind: "slow", run, straggler: true, parts: [run, `: rank ${stopped.rank} neither ran nor was ready to run in ${percent(stopped.stopped)} of a step`
            + (run.ranks.length > 1 ? "; the others wait for it." : ".")], why: ["Either " + STOPPED]});
    return found;
}

// Return how the speed of the runs is measured: in tokens per second if all runs count tokens,
// otherwise in steps per second.
function speedOf(runs) {
    return runs.every(run => run.tokens_per_s > 0)
        ? {of: run => run.tokens_per_s, text: run => shortNumber(run.tokens_per_s) + " tokens/s"}
        : {of: run => 1 / run.step_s, text: run => duration(run.step_s) + " a step"};
}

// Return the noise of a curve: the standard deviation of its last values, each compared with the
// mean of its neighbors. The result is 0 if there are too few values.
function noiseOf(values) {
    const last = values.filter(v => v !== null).slice(-8);
    let sum = 0;
    for (let i = 1; i + 1 < last.length; i++)
        sum += (last[i - 1] - 2 * last[i] + last[i + 1]) ** 2 / 6;
    return last.length > 2 ? Math.sqrt(sum / (last.length - 2)) : 0;
}

// Two losses count as equal if they differ by at most this margin: half a percent or, if it is
// larger, the noise of the best curve, but at most two percent.
function marginOf(run, by) {
    const curve = run.curves && run.curves[by.curve], loss = Math.abs(by.of(run));
    return Math.max(0.005 * loss, Math.min(0.02 * loss, curve ? 2 * noiseOf(curve.mean) : 0));
}

function listed(parts) {
    return parts.flatMap((part, i) => [...(i === 0 ? [] : [i + 1 === parts.length ? " and " : ", "]), ...part]);
}

function sameText(apart, margin, loss) {
    return (apart > 0 ? `They are ${percent(apart / loss)} apart` : "They are equal")
        + `; less than ${percent(margin / loss)} counts as the same, since another --seed changes as much.`;
}

// Say in which settings two runs differ, or several runs whose order the reader knows. Return "" if
// no setting differs.
function differenceOf(runs) {
    const changed = differingSettings(runs).slice(0, 4);
    if (!changed.length)
        return "";
    return runs.length === 2
        ? `${runs[0].name} and ${runs[1].name} differ in ${changed.map(([key, [a, b]]) => `${key} ${a} (${runs[1].name}: ${b})`).join(", ")}.`
        : `In this order, they differ in ${changed.map(([key, values]) => `${key} (${values.join(", ")})`).join(", ")}.`;
}

// Return the finding about the best runs. `sorted` has at least two runs, the best one first.
function bestFinding(sorted, measured, by, result) {
    const first = sorted[0], margin = marginOf(first, by);
    const same = sorted.filter(run => by.of(run) - by.of(first) <= margin), next = sorted[same.length];
    const going = sorted.filter(run => !["ended", "failed", "gone", "silent"].includes(run.state));
    const shown = alignedNumbers(sorted.map(by.of)), loss = run => ` with ${shown(by.of(run))} at step ${by.at(run)}`;
    const ending = next ? ["; next is ", next, ` with ${shown(by.of(next))}.`] : ["."];
    result.best = new Set(same.map(run => run.id));
    return {kind: "best", run: first,
        parts: same.length > 1 ? [`Best, with practically the same ${by.name}: `, ...listed(same.slice(0, 5).map(run => [run, loss(run)])),
            same.length > 5 ? ` (and ${same.length - 5} more)` : "", ...ending]
            : ["Best: ", first, ` with a ${by.name} of ${shown(by.of(first))} at step ${by.at(first)}`, ...ending],
        why: [same.length > 1 ? sameText(by.of(same[same.length - 1]) - by.of(first), margin, Math.abs(by.of(first))) : "",
            same.length > 1 ? differenceOf(same.slice(0, 5)) : "",
            next ? differenceOf([first, next]) : "",
            new Set(sorted.filter(run => run.description).map(run => settingsOf(run)["validation-data"])).size > 1 && by.name === "validation loss"
                ? "The runs validate on different data, so their losses may not compare." : "",
            sorted.length < measured.length ? `${measured.length - sorted.length} without validation could not be compared.` : "",
            going.length ? "Some runs still go on." : ""]};
}

// Return the runs that are clearly slower than the fastest one. If these are more than half of the
// runs, the fastest run is an exception: then return only runs that are clearly slower than the
// median, or the slowest one.
function slowRuns(timed, speed) {
    const sorted = [...timed].sort((a, b) => speed.of(a) - speed.of(b)), fastest = speed.of(sorted[sorted.length - 1]);
    const slow = sorted.filter(run => fastest > 1.25 * speed.of(run));
    if (slow.length <= sorted.length / 2)
        return slow;
    const middle = speed.of(sorted[sorted.length >> 1]), slower = slow.filter(run => middle > 1.25 * speed.of(run));
    return slower.length ? slower : slow.slice(0, 1);
}

const SLOW_FINDINGS = 3; // maximum number of slow runs that are explained; the other slow runs are only named

function compare(runs) {
    const found = [], explained = new Set(), measured = runs.filter(run => run.steps > 0);
    const result = {best: new Set(), slow: new Set(), findings: found};
    if (measured.length > 1) {
        const by = rankBy(measured), sorted = measured.filter(run => by.of(run) !== null).sort((a, b) => by.of(a) - by.of(b));
        if (sorted.length > 1)
            found.push(bestFinding(sorted, measured, by, result));
    }
    const timed = measured.filter(run => run.step_s > 0);
    if (timed.length > 1) {
        const speed = speedOf(timed), fast = timed.reduce((a, b) => speed.of(a) >= speed.of(b) ? a : b);
        const slow = slowRuns(timed, speed);
        result.slow = new Set(slow.map(run => run.id));
        for (const run of slow.slice(0, SLOW_FINDINGS)) {
            explained.add(run.id);
            found.push({kind: "slow", run, parts: ["Slow: ", run, ` makes ${speed.text(run)}, `, fast,
                ` ${(speed.of(fast) / speed.of(run)).toPrecision(2)} times as much (${speed.text(fast)}).`], why: reasons(run, fast)});
        }
        if (slow.length > SLOW_FINDINGS)
            found.push({kind: "slow", run: slow[SLOW_FINDINGS], parts: ["Slow, too: ", ...listed(slow.slice(SLOW_FINDINGS).map(run => [run])), "."], why: []});
    }
    for (const run of runs)
        for (const trouble of troubles(run))
            if (!(trouble.straggler && explained.has(run.id)))
                found.push(trouble);
    if (measured.length === 1) {
        const run = measured[0], split = splitOf(run);
        found.unshift({kind: "", run, parts: [run, `: step ${run.step}`, run.best_loss !== null
            ? `, best validation loss ${shortNumber(run.best_loss)} at step ${run.best_step}`
            : `, training loss ${shortNumber(lastLoss(run))}`, `, ${duration(run.step_s)} a step.`],
            why: split ? [`Of the time of a step: ${splitText(split)}.`] : []});
    }
    return result;
}
