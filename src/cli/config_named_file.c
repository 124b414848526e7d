/* See fsdp_config_named_file() in config.h. */
#include <stddef.h>

#include "src/base/error.h"
#include "src/cli/config.h"

fsdp_status fsdp_config_named_file(const fsdp_options *options, const char *flag, const char **path)
{
    int n;
    char **files = fsdp_options_positional(options, &n);
    if (n && flag)
        return fsdp_error(FSDP_ERR_INVALID, "two files are given: %s, and --config-file %s",
                          files[0], flag);
    *path = n ? files[0] : flag;
    return FSDP_OK;
}
