/* Log lines on stderr. FSDP_LOG=info,comm:debug sets the level of the component comm to debug, and
 * the level of all other components to info. A line begins with [rank/world_size]. Only rank 0
 * prints lines of level info; every rank prints lines of all other levels. The library itself never
 * prints errors. It returns errors to the caller. */
#pragma once
#include <stdarg.h>

#include <fsdp/base.h>

typedef enum fsdp_log_level {
    FSDP_LOG_OFF,
    FSDP_LOG_WARN,
    FSDP_LOG_INFO,
    FSDP_LOG_DEBUG,
    FSDP_LOG_TRACE
} fsdp_log_level;

/* Return true if lines of this level are printed for `component` ("comm", "fsdp", ...). The first
 * call reads FSDP_LOG. */
bool fsdp_log_enabled(const char *component, fsdp_log_level level);

/* Print a line, with a newline added, if lines of this level are printed for `component`. If `rank`
 * < 0, the line does not begin with [rank/world_size]. */
FSDP_PRINTF(5, 6)
void fsdp_log(const char *component, fsdp_log_level level, int rank, int world_size,
              const char *format, ...);
