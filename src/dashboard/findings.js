// What the numbers of several runs say: which was best, which was slow and why, and what went
// wrong. Each finding is {kind, run, parts, why}: `parts` are texts, of which [text] is bold.
"use strict";

// Where the time of a step goes, as a mean over the ranks, in seconds. null without rank files.
function splitOf(run) {
    const ranks = run.ranks.filter(r => r[1] > 0);
    if (!ranks.length)
        return null;
    const sum = i => ranks.reduce((total, r) => total + r[i], 0);
    const steps = sum(1), seconds = sum(2), wait = sum(3), data = sum(4);
    return {step: seconds / steps, wait: wait / steps, data: data / steps,
        compute: Math.max(0, seconds - wait - data) / steps, queued: sum(5) / ranks.length};
}

// The rank for which the others wait: it computes longer than they do. null if there is none.
function stragglerOf(run) {
    const ranks = run.ranks.filter(r => r[1] > 0).map(r => ({rank: r[0], own: (r[2] - r[3] - r[4]) / r[1],
        data: r[4] / r[1], wait: r[3] / r[1], step: r[2] / r[1]}));
    if (ranks.length < 2)
        return null;
    const busy = r => r.own + r.data;
    const slowest = ranks.reduce((a, b) => busy(a) >= busy(b) ? a : b);
    const others = ranks.filter(r => r !== slowest);
    const mean = others.reduce((sum, r) => sum + busy(r), 0) / others.length;
    const wait = others.reduce((sum, r) => sum + r.wait, 0) / others.length;
    if (!(busy(slowest) > 1.2 * mean) || !(wait > 0.15 * slowest.step))
        return null;
    return {rank: slowest.rank, times: busy(slowest) / mean, byData: slowest.data > slowest.own * 0.5,
        wait: wait / slowest.step};
}

// The loss by which runs are compared: that of validation, if several have one, else of training.
function rankBy(runs) {
    const validated = runs.filter(run => run.best_loss !== null).length;
    if (validated === runs.length || validated > 1)
        return {name: "validation loss", of: run => run.best_loss, at: run => run.best_step};
    return {name: "training loss", of: lastLoss, at: run => run.step};
}

// The mean training loss of the last twentieth of a run.
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

// Keys that say where files are or what a run is called: they differ between any two runs.
const PLACES = new Set(["output", "metrics", "logging-dir", "run-name", "project", "checkpoint-dir", "profile", "plot",
    "resume", "checkpoint", "overwrite-output", "dashboard", "dashboard-port", "dashboard-stays", "rank-metrics",
    "tracker-command", "report-to", "with-tracking", "offload-dir", "config"]);

// [[key, [value of each run]], ...] of settings that differ. The number of ranks counts as one.
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

// Why `slow` needs more time than `fast`, as sentences. Times are for a step; if the runs have steps
// of different sizes, they are compared for as many tokens.
function reasons(slow, fast) {
    const a = splitOf(slow), b = splitOf(fast), found = [];
    if (!a)
        return ["It wrote nothing about its ranks, so the page cannot tell why."];
    const scale = slow.tokens_per_step > 0 && fast.tokens_per_step > 0 ? slow.tokens_per_step / fast.tokens_per_step : 1;
    const straggler = stragglerOf(slow);
    const more = b ? {wait: a.wait - b.wait * scale, data: a.data - b.data * scale, compute: a.compute - b.compute * scale}
        : {wait: a.wait, data: a.data, compute: 0};
    const whole = Math.max(more.wait, 0) + Math.max(more.data, 0) + Math.max(more.compute, 0) || 1;
    found.push(`A step takes ${duration(a.step)}: ${percent(a.compute / a.step)} computing, ${percent(a.wait / a.step)} `
        + `waiting for other ranks, ${percent(a.data / a.step)} waiting for data`
        + (b ? ` (${fast.name}: ${duration(b.step)}: ${percent(b.compute / b.step)}, ${percent(b.wait / b.step)}, `
            + `${percent(b.data / b.step)}).` : "."));
    const crowded = a.queued > 0.1 && (!b || a.queued > 2 * b.queued);
    if (crowded)
        found.push(`Its cores were busy with other work ${percent(a.queued)} of the time`
            + (b ? ` (${fast.name}: ${percent(b.queued)})` : "") + ": other programs run there, or a container's quota is used up.");
    if (straggler)
        found.push(`Rank ${straggler.rank} is the slow one: ${straggler.byData ? "it reads its data and computes" : "it computes"} `
            + `${straggler.times.toPrecision(2)} times as long as the others, which wait for it ${percent(straggler.wait)} of a step. `
            + (crowded ? "" : "Look at what else its host does, and whether its cores are slower."));
    else if (more.wait > 0.4 * whole && !crowded)
        found.push("The ranks wait for each other more than there, though none of them computes longer: they share cores "
            + "with something else, or the sizes of their batches differ.");
    if (more.data > 0.3 * whole)
        found.push("It waits for its data: more --num-workers, or token files made by 'fsdp tokenize', help.");
    if (more.compute > 0.3 * whole && !(straggler && more.compute < 0.6 * whole)) {
        const why = costlyDifference(slow, fast);
        found.push(`It computes ${b ? (a.compute / (b.compute * scale)).toPrecision(2) + " times as long" : "long"}`
            + (scale < 0.8 || scale > 1.25 ? " for as many tokens" : "") + (why ? ": " + why + "." : crowded ? ", since it had to share its cores." : "; no setting that costs time differs, so other programs may have had its cores."));
    }
    return found;
}

// Whether a loss ends clearly above where it began, or above its best stretch: by more than its noise
// explains. null if not.
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

function troubles(run) {
    const found = [];
    if (run.state === "failed")
        found.push({kind: "bad", run, parts: [[run.name], " failed at step " + run.step + "."], why: [run.message || ""]});
    else if (run.state === "gone")
        found.push({kind: "bad", run, parts: [[run.name], " has vanished after step " + run.step + ": its process is not there any more, and it did not say that it ended."], why: []});
    const loss = run.curves && run.curves["train/loss"];
    if (loss && loss.not_finite > 0)
        found.push({kind: "bad", run, parts: [[run.name], ": the loss of " + loss.not_finite + (loss.not_finite === 1 ? " step is" : " steps is") + " not a number."], why: []});
    const risen = loss ? riseOf(loss.mean.filter(v => v !== null)) : null;
    if (risen)
        found.push({kind: "bad", run, parts: [[run.name], ": the training loss has risen from " + shortNumber(risen.from) + " to " + shortNumber(risen.to) + "."],
            why: ["A smaller learning rate, a longer warm-up or --max-grad-norm may help."]});
    const outside = timeOutside(run);
    if (outside.validation > 0.3)
        found.push({kind: "slow", run, parts: [[run.name], " spends " + percent(outside.validation) + " of its time in " + run.validations + " validations."], why: []});
    if (outside.save > 0.2)
        found.push({kind: "slow", run, parts: [[run.name], " spends " + percent(outside.save) + " of its time saving " + run.saves + " checkpoints."],
            why: ["--async-save writes them while training goes on; --save-steps says how often."]});
    if (run.bad_lines > 0)
        found.push({kind: "bad", run, parts: [[run.name], ": " + run.bad_lines + " lines of its file of metrics are damaged and left out."], why: []});
    const straggler = stragglerOf(run);
    if (straggler)
        found.push({kind: "slow", run, straggler: true, parts: [[run.name], `: rank ${straggler.rank} computes ${straggler.times.toPrecision(2)} times as long as the others, `
            + `which wait for it ${percent(straggler.wait)} of a step.`], why: []});
    return found;
}

// The speed of a run: tokens in a second, if all runs count tokens; else steps.
function speedOf(runs) {
    return runs.every(run => run.tokens_per_s > 0)
        ? {of: run => run.tokens_per_s, text: run => shortNumber(run.tokens_per_s) + " tokens/s"}
        : {of: run => 1 / run.step_s, text: run => duration(run.step_s) + " a step"};
}

function compare(runs) {
    const found = [], measured = runs.filter(run => run.steps > 0);
    const result = {best: null, slow: null, findings: found};
    if (measured.length > 1) {
        const by = rankBy(measured), sorted = measured.filter(run => by.of(run) !== null).sort((a, b) => by.of(a) - by.of(b));
        if (sorted.length > 1) {
            const [first, second] = sorted;
            result.best = first.id;
            const going = sorted.filter(run => !["ended", "failed", "gone", "silent"].includes(run.state));
            const changed = differingSettings([first, second]).slice(0, 4).map(([key, [a, b]]) => `${key} ${a} (${second.name}: ${b})`);
            found.push({kind: "best", run: first, parts: ["Best: ", [first.name], ` with a ${by.name} of ${shortNumber(by.of(first))} at step ${by.at(first)}; next is `,
                [second.name], ` with ${shortNumber(by.of(second))}.`],
                why: [changed.length ? "They differ in " + changed.join(", ") + "." : "",
                    new Set(sorted.filter(run => run.description).map(run => settingsOf(run)["validation-data"])).size > 1 && by.name === "validation loss"
                        ? "The runs validate on different data, so their losses may not compare." : "",
                    sorted.length < measured.length ? `${measured.length - sorted.length} without validation could not be compared.` : "",
                    going.length ? "Some runs still go on." : ""]});
        }
    }
    const timed = measured.filter(run => run.step_s > 0);
    if (timed.length > 1) {
        const speed = speedOf(timed), fast = timed.reduce((a, b) => speed.of(a) >= speed.of(b) ? a : b);
        const slow = timed.reduce((a, b) => speed.of(a) <= speed.of(b) ? a : b);
        if (speed.of(fast) > 1.25 * speed.of(slow)) {
            result.slow = slow.id;
            found.push({kind: "slow", run: slow, parts: ["Slow: ", [slow.name], ` makes ${speed.text(slow)}, `, [fast.name],
                ` ${(speed.of(fast) / speed.of(slow)).toPrecision(2)} times as much (${speed.text(fast)}).`], why: reasons(slow, fast)});
        }
    }
    for (const run of runs)
        for (const trouble of troubles(run))
            if (!(trouble.straggler && run.id === result.slow))
                found.push(trouble);
    if (measured.length === 1) {
        const run = measured[0], split = splitOf(run);
        found.unshift({kind: "", run, parts: [[run.name], `: step ${run.step}`, run.best_loss !== null
            ? `, best validation loss ${shortNumber(run.best_loss)} at step ${run.best_step}`
            : `, training loss ${shortNumber(lastLoss(run))}`, `, ${duration(run.step_s)} a step.`],
            why: split ? [`${percent(split.compute / split.step)} of a step is computing, ${percent(split.wait / split.step)} waiting for other ranks, `
                + `${percent(split.data / split.step)} waiting for data.`] : []});
    }
    return result;
}
