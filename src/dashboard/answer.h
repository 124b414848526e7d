/* Makes the server's answers to the page, as JSON text. Texts that came from files are JSON
 * strings, which the page shows as plain text. */
#pragma once
#include "src/base/str.h"
#include "src/dashboard/board.h"

/* Append all runs, all checkpoints, and the names of all logs. Each run has its state, numbers of
 * steps, times and best loss. Its settings, saves and curves are left out if the run has not
 * changed since the board's revision `since`. */
void fsdp_answer_runs(fsdp_board *board, int64_t since, fsdp_str *answer);
/* Append the ranks of the run `id` with their samples, and the collectives of each unit. Return
 * false if there is no such run. */
bool fsdp_answer_run(fsdp_board *board, int64_t id, fsdp_str *answer);
/* Append the end of the log `id`. Return false if there is no such log. */
bool fsdp_answer_log(fsdp_board *board, int64_t id, fsdp_str *answer);
