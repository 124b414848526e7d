/* A program that gets the rows of a run on its standard input (`--tracker-command`), one JSON
 * object a line, and sends them to a tracker such as W&B or MLflow.
 *
 * The run does not depend on the program. If it ends early, or does not read its input, rows are
 * left out, and the run says so once. The program's own output goes to stderr. It ignores the
 * terminal's Ctrl-C, which is for the run; at the end of the run it gets end-of-file. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

typedef struct fsdp_tracker_command fsdp_tracker_command;

/* Called with a message for the user. */
typedef void fsdp_tracker_say_fn(void *context, const char *message);

/* Start `command` by /bin/sh. `say` gets what the user should know; it may be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_tracker_command_start(const char *command,
                                                       fsdp_tracker_say_fn *say, void *context,
                                                       fsdp_tracker_command **tracker);
/* Send `line` [bytes], which ends with a newline. Never waits for the program: what it does not
 * take is kept, up to 16 MiB. Only failures of memory are errors. */
FSDP_MUST_CHECK fsdp_status fsdp_tracker_command_send(fsdp_tracker_command *tracker,
                                                      const char *line, size_t bytes);
/* Send what is kept, close the program's input and wait until it ends, at most `seconds`. After
 * that it gets SIGTERM, and SIGKILL if that does not end it. Accepts NULL. */
void fsdp_tracker_command_close(fsdp_tracker_command *tracker, double seconds);
