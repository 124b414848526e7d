/* Exit codes of `fsdp` and of the ranks that it starts. Tests and tools may rely on them. */
#pragma once

typedef enum fsdp_exit {
    FSDP_EXIT_OK = 0,
    FSDP_EXIT_FAILURE = 1, /* the work failed: for example, a file was missing, a peer died, or a
                              loss was not finite */
    FSDP_EXIT_USAGE = 2    /* the command line or configuration is wrong; nothing was started */
} fsdp_exit;
