/* See line.h. */
#include "src/dashboard/line.h"

#include <string.h>

#include "src/report/metrics.h"
#include "src/text/chars/utf8.h"

double fsdp_line_number(fsdp_json_node line, const char *key, double fallback)
{
    double value;
    const fsdp_json_kind kind = fsdp_json_kind_of(fsdp_json_find(line, key));
    if (kind != FSDP_JSON_INT && kind != FSDP_JSON_REAL && kind != FSDP_JSON_STRING)
        return fallback;
    return fsdp_metrics_get_number(line, key, &value) == FSDP_OK ? value : fallback;
}

void fsdp_line_text(fsdp_json_node line, const char *key, char *text, size_t size)
{
    const char *value = "";
    if (fsdp_json_kind_of(fsdp_json_find(line, key)) == FSDP_JSON_STRING &&
        fsdp_json_get_str(line, key, &value) != FSDP_OK)
        value = "";
    size_t n = strlen(value);
    if (n >= size)
        n = size - 1;
    n = fsdp_utf8_valid_length(value, n);
    memcpy(text, value, n);
    text[n] = 0;
}
