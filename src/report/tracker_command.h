/* A program that gets the rows of a run on its standard input (`--tracker-command`), one JSON
 * object a line, and sends them to a tracker such as W&B or MLflow.
 *
 * The run does not depend on the program. If the program ends early, or does not read its input,
 * rows are left out, and the run prints this once. The program's own output goes to stderr. Ctrl-C
 * on the terminal reaches the run, but not the program. At the end of the run, the program gets
 * end-of-file. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

typedef struct fsdp_tracker_command fsdp_tracker_command;

/* Called with a message for the user. */
typedef void fsdp_tracker_say_fn(void *context, const char *message);

/* Start `command` with /bin/sh. `say`, which may be NULL, is called with messages for the user. */
FSDP_MUST_CHECK fsdp_status fsdp_tracker_command_start(const char *command,
                                                       fsdp_tracker_say_fn *say, void *context,
                                                       fsdp_tracker_command **tracker);
/* Send `line` [bytes], which ends with a newline. Never waits for the program: bytes that it does
 * not take are kept, up to 16 MiB. The only error is FSDP_ERR_NOMEM. */
FSDP_MUST_CHECK fsdp_status fsdp_tracker_command_send(fsdp_tracker_command *tracker,
                                                      const char *line, size_t bytes);
/* Send the bytes that are kept, close the program's input, and wait until the program ends. After
 * `seconds`, send SIGTERM to the program, and then SIGKILL if SIGTERM does not end it. Accepts
 * NULL. */
void fsdp_tracker_command_close(fsdp_tracker_command *tracker, double seconds);
