# Part of tools/gpu_check.sh: the table of training steps, ours beside PyTorch's, from the lines of
# gpu_check.jsonl.
function text(key) {
    if (!match($0, "\"" key "\": \"[^\"]*\"")) return ""
    return substr($0, RSTART + length(key) + 5, RLENGTH - length(key) - 6)
}
function value(key) {
    if (!match($0, "\"" key "\": [-0-9.e+]+")) return "-"
    return substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 4)
}
function ratio(a, b) { return a > 0 && b > 0 ? sprintf("%.2f", a / b) : "-" }
function cell(format, a) { return a == "" || a == "-" ? "-" : sprintf(format, a) }
{
    name = text("part")
    kind = name
    if (!sub(/^bench /, "", name) && !sub(/^torch (eager|compiled) /, "", name)) next
    sub(" " name "$", "", kind)
    if (value("step_ms") == "-") next
    ms[kind, name] = value("step_ms")
    mib[kind, name] = value("peak_allocated_mib")
    first[kind, name] = value("first_step_after_s")
    if (kind != "bench") next
    order[++n] = name
    bar[name] = value("bar_ms")
    aim[name] = value("aim_ms")
    mfu[name] = value("of_989_tflops")
}
END {
    if (!n) exit
    line = "%-28s %8s %5s %5s %6s | %8s %6s %8s %6s | %6s %7s %5s %4s | %6s %7s %4s\n"
    printf "\n" line, "a step of bf16", "ms", "bar", "aim", "of 989", "PyTorch", "x", "compiled",
        "x", "MiB", "PyTorch", "part", "bar", "1st, s", "PyTorch", "bar"
    for (i = 1; i <= n; i++) {
        s = order[i]
        own = ms["bench", s]
        eager = ms["torch eager", s]
        compiled = ms["torch compiled", s]
        printf line, s, own, bar[s], aim[s], mfu[s], cell("%.2f", eager), ratio(eager, own),
            cell("%.2f", compiled), ratio(compiled, own), cell("%.0f", mib["bench", s]),
            cell("%.0f", mib["torch eager", s]), ratio(mib["bench", s], mib["torch eager", s]),
            "0.8", cell("%.2f", first["bench", s]), cell("%.1f", first["torch eager", s]), 3
    }
}
