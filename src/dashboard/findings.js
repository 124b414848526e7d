// Finds out from the numbers of several runs which run was best, in which settings the runs differ,
// and what went wrong. slow.js finds out which runs are slow. Each finding is {kind, run, parts, why}.
// `parts` are texts and runs; a text in an array, [text], is bold, and the page shows a run as a link
// with its name.
"use strict";

// Return by which loss the runs are compared: the validation loss if several runs have one,
// otherwise the training loss. `mean` says of how many steps this loss is the mean.
function rankBy(runs) {
    const validated = runs.filter(run => run.best_loss !== null).length;
    if (validated === runs.length || validated > 1)
        return {name: "validation loss", mean: "", curve: "eval/loss", of: run => run.best_loss, at: run => run.best_step};
    return {name: "training loss", mean: ` (${lastMeanText(runs)})`, curve: "train/loss", of: lastLoss, at: run => run.step};
}

// Return how many points of the curve of the training loss are in the last twentieth of a run.
function lastPoints(curve) {
    return Math.max(1, Math.ceil(curve.mean.length / 20));
}

// Return the mean training loss over the last twentieth of a run.
function lastLoss(run) {
    const curve = run.curves && run.curves["train/loss"];
    if (!curve || !curve.mean.length)
        return null;
    const tail = curve.mean.slice(-lastPoints(curve)).filter(v => v !== null);
    return tail.length ? tail.reduce((a, b) => a + b, 0) / tail.length : null;
}

// Return over how many steps lastLoss() is the mean; null if the run has no training loss. A point
// of a curve can stand for several steps.
function lastLossSteps(run) {
    const curve = run.curves && run.curves["train/loss"];
    if (!curve || !curve.mean.length || !curve.step)
        return null;
    const n = curve.step.length, before = n - lastPoints(curve) - 1;
    return before < 0 ? run.steps : Math.round(curve.step[n - 1] - curve.step[before]);
}

// Say of how many steps the training losses of the runs are means.
function lastMeanText(runs) {
    const counts = runs.map(lastLossSteps).filter(n => n !== null);
    if (!counts.length)
        return "mean of the last twentieth of the steps";
    const least = Math.min(...counts), most = Math.max(...counts);
    return most === 1 ? "of the last step" : least === most ? `mean of the last ${most} steps` : `mean of the last ${least} to ${most} steps`;
}

function settingsOf(run) {
    return run.description && run.description.config || {};
}

// Options that say where files are or how a run is called. They differ between any two runs, so
// they are not compared.
const PLACES = new Set(["output", "metrics", "logging-dir", "run-name", "project", "checkpoint-dir", "profile", "plot",
    "resume", "checkpoint", "overwrite-output", "dashboard", "dashboard-port", "dashboard-stays", "rank-metrics",
    "tracker-command", "report-to", "with-tracking", "offload-dir", "config"]);

// Values of options that stand for something else than a number, and what they mean.
const MEANINGS = {
    "epochs": {inf: "no limit"}, "max-steps": {"-1": "no limit"}, "eval-step-interval": {0: "off"}, "eval-iters": {0: "all"},
    "save-steps": {0: "off"}, "save-total-limit": {0: "no limit"}, "max-grad-norm": {0: "off"}, "clip-value": {0: "off"},
    "max-train-samples": {0: "all"}, "max-validation-samples": {0: "all"}, "max-seq-length": {0: "the limit of the model"},
    "memory-limit": {0: "no limit"}, "lora-r": {0: "off"}, "generate-examples": {0: "off"}, "log-histograms": {0: "off"},
    "threads-per-rank": {0: "automatic"}, "data-seed": {"-1": "as --seed"}, "document-token": {"-1": "none"},
    "val-max-target-length": {0: "as --max-target-length"}, "resume-step": {"-1": "as the checkpoint"},
};

// Return the value of an option of a run as a user reads it. A value that stands for "no limit" or
// the like is shown as these words.
function valueText(run, key) {
    const settings = settingsOf(run), value = settings[key];
    if (value === undefined)
        return "–";
    if (value === "" || value === null || value === "null")
        return "not given";
    if (key === "evaluation-steps" && Number(value) === 0)
        return settings["eval-strategy"] === "no" || settings["validation-data"] === "" ? "off" : "after each epoch";
    return MEANINGS[key] && Object.hasOwn(MEANINGS[key], value) ? MEANINGS[key][value] : String(value);
}

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
    const value = (run, key) => key === "ranks" ? String(run.world_size ?? "–") : valueText(run, key);
    return [...keys].filter(key => !PLACES.has(key) && new Set(known.map(run => value(run, key))).size > 1)
        .map(key => [key, runs.map(run => run.description ? value(run, key) : "?")]);
}

// States of runs that write no more, or have not written for long.
const OVER = new Set(["ended", "failed", "gone", "silent"]);

function isLive(state) {
    return !OVER.has(state);
}

// Return the text at the top of the page: whether the runs go on. `at` is the time of the last answer.
function statusText(runs, isPaused, at) {
    if (isPaused)
        return "paused at " + at;
    return (runs.some(run => isLive(run.state)) ? "live, " : runs.length ? "no run goes on, " : "no runs yet, ") + at;
}

// Return true if the loss of the run has diverged: its last values are not numbers, or it has risen.
// Such a run is no yardstick for the speed of the others, because it does not do their work.
function hasDiverged(run) {
    const loss = run.curves && run.curves["train/loss"];
    if (!loss || !loss.mean.length)
        return false;
    return loss.mean[loss.mean.length - 1] === null || riseOf(loss.mean.filter(v => v !== null)) !== null;
}

// Return {from, to}, two texts with losses, if the loss ends clearly higher than it began, or
// clearly higher than its lowest stretch; otherwise null. "Clearly" means by more than the noise
// of the loss. A stretch is a tenth of the values, or eight of them.
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
        return {from: shortNumber(least) + " (its lowest stretch)", to: shortNumber(now) + " (its last)"};
    return now > 1.3 * values[0] && now - values[0] > 3 * noise ? {from: shortNumber(values[0]) + " (its first value)", to: shortNumber(now) + " (its last stretch)"} : null;
}

function counted(n, one, several) {
    return `${n} ${String(n) === "1" ? one : several}`;
}

function sentence(text) {
    return text.charAt(0).toUpperCase() + text.slice(1);
}

// Return what went wrong in a run. `explained` has the kinds of reasons that are in the finding that
// the run is slow; these are not repeated.
function troubles(run, runs, explained) {
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
        found.push({kind: "bad", run, parts: [run, ": the training loss has risen from " + risen.from + " to " + risen.to + "."],
            why: ["A smaller learning rate, a longer warm-up or --max-grad-norm may help."]});
    const others = runs.filter(other => other !== run && other.total_s > 0 && other.steps > 0), share = (of, seconds) => of.total_s > 0 ? seconds / of.total_s : 0;
    const compared = of => {
        const shares = others.map(other => share(other, of(other))), least = percent(Math.min(...shares)), most = percent(Math.max(...shares));
        return !shares.length ? "." : ` (${shares.length === 1 ? others[0].name : "the other runs"}: ${least === most ? least : least + " to " + most}).`;
    };
    if (share(run, run.validation_s) > 0.3 && !explained.has("validation"))
        found.push({kind: "slow", run, parts: [run, " spends " + percent(share(run, run.validation_s)) + " of its time in " + counted(run.validations, "validation", "validations")
            + compared(other => other.validation_s)], why: [validationAdvice(run)]});
    if (share(run, run.save_s) > 0.2 && !explained.has("save"))
        found.push({kind: "slow", run, parts: [run, " spends " + percent(share(run, run.save_s)) + " of its time saving " + counted(run.saves, "checkpoint", "checkpoints")
            + compared(other => other.save_s)], why: [sentence(saveAdvice(run))]});
    if (run.bad_lines > 0)
        found.push({kind: "bad", run, parts: [run, ": " + counted(run.bad_lines, "line of its file of metrics is", "lines of its file of metrics are") + " damaged and left out."], why: []});
    const straggler = explained.has("wait") ? null : stragglerOf(run);
    if (straggler)
        found.push({kind: "slow", run, parts: [run, `: rank ${straggler.rank} is busy ${straggler.times.toPrecision(2)} times as long as the others, `
            + `which wait for it ${percent(straggler.wait)} of a step.`], why: [stragglerCause(straggler)]});
    const stopped = straggler || explained.has("wait") || explained.has("stopped") ? null : stoppedOf(run);
    if (stopped)
        found.push({kind: "slow", run, parts: [run, `: rank ${stopped.rank} neither ran nor was ready to run in ${percent(stopped.stopped)} of a step`
            + (run.ranks.length > 1 ? "; the others wait for it." : ".")], why: ["Either " + STOPPED]});
    return found;
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

// Settings that change no loss: where tensors are, who computes them, and what is written.
const SAME_LOSS = new Set(["threads-per-rank", "num-workers", "prefetch", "activation-checkpointing", "activation-checkpointing-every",
    "activation-checkpointing-kind", "activation-offload", "cpu-offload", "offload-params", "sharding-strategy", "auto-wrap-policy",
    "backward-prefetch", "forward-prefetch", "limit-all-gathers", "async-save", "save-steps", "save-total-limit", "save-strategy"]);

// Say in which settings two runs differ, or several runs whose order the reader knows. Settings that
// change no loss are left out. Return "" if no setting differs.
function differenceOf(runs) {
    const changed = differingSettings(runs).filter(([key]) => !SAME_LOSS.has(key)).slice(0, 4);
    if (!changed.length)
        return "";
    return runs.length === 2
        ? `${runs[0].name} and ${runs[1].name} differ in ${changed.map(([key, [a, b]]) => `${key} ${a} (${runs[1].name}: ${b})`).join(", ")}.`
        : `In this order, they differ in ${changed.map(([key, values]) => `${key} (${values.join(", ")})`).join(", ")}.`;
}

// Say that the runs have not trained equally long; "" if they have. Steps count first, then tokens.
function unevenText(runs) {
    const inTokens = countsTokens(runs), tokens = run => workOf(run, true), isUneven = (of, times) => Math.max(...runs.map(of)) > times * Math.min(...runs.map(of));
    if (!isUneven(run => run.step, 1.02) && !(inTokens && isUneven(tokens, 1.25)))
        return "";
    const one = run => `${run.name} ${counted(run.step, "step", "steps")}` + (inTokens ? ` (${shortNumber(tokens(run))} tokens)` : "");
    const range = of => `${shortNumber(Math.min(...runs.map(of)))} to ${shortNumber(Math.max(...runs.map(of)))}`;
    return "The comparison is uneven, because the runs have not trained equally long: "
        + (runs.length > 6 ? `${range(run => run.step)} steps` + (inTokens ? `, ${range(tokens)} tokens.` : ".") : runs.map(one).join(", ") + ".");
}

// Return the finding about the best runs. `sorted` has at least two runs, the best one first.
function bestFinding(sorted, measured, by, result) {
    const first = sorted[0], margin = marginOf(first, by);
    const same = sorted.filter(run => by.of(run) - by.of(first) <= margin), next = sorted[same.length];
    const going = sorted.filter(run => isLive(run.state));
    const shown = alignedNumbers(sorted.map(by.of)), loss = run => ` with ${shown(by.of(run))} at step ${by.at(run)}`;
    const more = next ? (by.of(next) - by.of(first)) / Math.abs(by.of(first)) : 0;
    const ending = next ? ["; next is ", next, ` with ${shown(by.of(next))}${isFinite(more) ? ` (${percent(more)} more)` : ""}.`] : ["."];
    result.best = new Set(same.map(run => run.id));
    return {kind: "best", run: first,
        parts: same.length > 1 ? [`Best, with practically the same ${by.name}${by.mean}: `, ...listed(same.slice(0, 5).map(run => [run, loss(run)])),
            same.length > 5 ? ` (and ${same.length - 5} more)` : "", ...ending]
            : ["Best: ", first, ` with a ${by.name} of ${shown(by.of(first))} at step ${by.at(first)}${by.mean}`, ...ending],
        why: [same.length > 1 ? sameText(by.of(same[same.length - 1]) - by.of(first), margin, Math.abs(by.of(first))) : "",
            same.length > 1 ? differenceOf(same.slice(0, 5)) : "",
            next ? differenceOf([first, next]) : "",
            unevenText(sorted),
            new Set(sorted.filter(run => run.description).map(run => settingsOf(run)["validation-data"])).size > 1 && by.name === "validation loss"
                ? "The runs validate on different data, so their losses may not compare." : "",
            sorted.length < measured.length ? `${measured.length - sorted.length} without validation could not be compared.` : "",
            going.length ? "Some runs still go on." : ""]};
}

function compare(runs) {
    const found = [], explained = new Map(), measured = runs.filter(run => run.steps > 0);
    const result = {best: new Set(), slow: new Set(), findings: found};
    if (measured.length > 1) {
        const by = rankBy(measured), sorted = measured.filter(run => by.of(run) !== null).sort((a, b) => by.of(a) - by.of(b));
        if (sorted.length > 1)
            found.push(bestFinding(sorted, measured, by, result));
    }
    const timed = measured.filter(run => run.total_s > 0);
    if (timed.length > 1)
        addSlow(timed, result, explained);
    for (const run of runs)
        found.push(...troubles(run, runs, explained.get(run.id) || new Set()));
    if (measured.length === 1) {
        const run = measured[0], split = splitOf(run);
        found.unshift({kind: "", run, parts: [run, `: step ${run.step}`, run.best_loss !== null
            ? `, best validation loss ${shortNumber(run.best_loss)} at step ${run.best_step}`
            : `, training loss ${shortNumber(lastLoss(run))} (${lastMeanText([run])})`, `, ${duration(run.step_s)} a step.`],
            why: split ? [`Of the time of a step: ${splitText(split)}.`] : []});
    }
    return result;
}
