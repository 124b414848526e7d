/* See csv_field.h. */
#include "src/base/csv_field.h"

#include <string.h>

void fsdp_str_add_csv_field(fsdp_str *line, const char *text, bool first)
{
    if (!first)
        fsdp_str_append(line, ",", 1);
    if (*text && !strpbrk(text, ",\"\r\n") && *text != ' ') {
        fsdp_str_append(line, text, strlen(text));
        return;
    }
    fsdp_str_append(line, "\"", 1);
    for (const char *quote = strchr(text, '"'); quote; quote = strchr(text, '"')) {
        fsdp_str_append(line, text, (size_t)(quote + 1 - text));
        fsdp_str_append(line, "\"", 1);
        text = quote + 1;
    }
    fsdp_str_append(line, text, strlen(text));
    fsdp_str_append(line, "\"", 1);
}
