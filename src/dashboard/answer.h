/* The answers of the server to the page, as JSON text. Everything that came from files is a string
 * that the page shows as text. */
#pragma once
#include "src/base/str.h"
#include "src/dashboard/board.h"

/* All runs: their numbers, settings and curves; all checkpoints; the names of all logs. The curves
 * and settings of runs that have not changed since the revision `since` are left out. */
void fsdp_answer_runs(fsdp_board *board, int64_t since, fsdp_str *answer);
/* The ranks of the run `id` with their samples, and its collectives by unit. Returns false if there
 * is no such run. */
bool fsdp_answer_run(fsdp_board *board, int64_t id, fsdp_str *answer);
/* The end of the log `id`. Returns false if there is no such log. */
bool fsdp_answer_log(fsdp_board *board, int64_t id, fsdp_str *answer);
