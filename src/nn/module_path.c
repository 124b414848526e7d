/* The dotted path of a module: see module.h. */
#include <stdio.h>

#include "src/nn/module.h"

size_t fsdp_module_write_path(const fsdp_module *m, char *text, size_t bytes)
{
    if (!m || !m->parent)
        return 0;
    size_t used = fsdp_module_write_path(m->parent, text, bytes);
    int n = snprintf(text + used, bytes - used, "%s.", m->name);
    return n > 0 && used + (size_t)n < bytes ? used + (size_t)n : 0;
}

const char *fsdp_module_path(const fsdp_module *m, char *text, size_t bytes)
{
    const size_t used = fsdp_module_write_path(m, text, bytes);
    text[used ? used - 1 : 0] = 0;
    return text;
}
