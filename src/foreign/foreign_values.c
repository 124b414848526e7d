/* Formats strings, adds notes to the report, and reads plain values of a checkpoint that another
 * program saved. */
#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"
#include "src/foreign/foreign_internal.h"

enum {
    MAX_NOTE = 1024 /* bytes of a note; longer notes are truncated */
};

const char *fsdp_foreign_text(fsdp_foreign_run *run, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n < 0 ? NULL : fsdp_arena_alloc(&run->arena, (size_t)n + 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}

fsdp_status fsdp_foreign_note(fsdp_foreign_run *run, const char *format, ...)
{
    char text[MAX_NOTE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fsdp_foreign_report *r = run->report;
    return fsdp_names_add(&r->notes, &r->n_notes, &r->cap_notes, text);
}

/* Convert `f` to a double. The result is the decimal number with the fewest digits that reads back
 * as `f`. For a learning rate, this is the number that the user gave. A number of steps remains
 * exact. */
static double double_of(float f)
{
    char text[32];
    int digits = 0;
    do
        snprintf(text, sizeof text, "%.*g", ++digits, (double)f);
    while (digits < FLT_DECIMAL_DIG && strtof(text, NULL) != f);
    return strtod(text, NULL);
}

/* Read a tensor with one element, such as a learning rate or a number of steps. Set *known to false
 * if the tensor has more elements or an unexpected dtype. */
static fsdp_status number_of(const fsdp_foreign_run *run, const fsdp_source_item *item,
                             fsdp_plain *value, bool *known)
{
    const fsdp_safetensors_dtype *dtype = fsdp_safetensors_dtype_by_name(item->dtype_name);
    _Alignas(8) char bytes[8] = {0};
    *known = item->numel == 1 && item->bytes <= (int64_t)sizeof bytes && dtype &&
             (dtype->fsdp_dtype == FSDP_DTYPE_F32 || strcmp(dtype->name, "F64") == 0 ||
              dtype->fsdp_dtype == FSDP_DTYPE_I64);
    if (!*known)
        return FSDP_OK;
    FSDP_TRY(fsdp_source_read(run->optim->source, item, 0, bytes, (size_t)item->bytes));
    *value = (fsdp_plain){.kind = FSDP_PLAIN_FLOAT};
    if (dtype->fsdp_dtype == FSDP_DTYPE_F32) {
        float f;
        memcpy(&f, bytes, sizeof f);
        value->as.number = double_of(f);
    } else if (dtype->fsdp_dtype == FSDP_DTYPE_I64) {
        int64_t i;
        memcpy(&i, bytes, sizeof i);
        value->as.number = (double)i;
    } else {
        memcpy(&value->as.number, bytes, sizeof value->as.number);
    }
    return FSDP_OK;
}

fsdp_status fsdp_foreign_value(fsdp_foreign_run *run, const fsdp_source_item *item,
                               fsdp_plain *value, bool *known)
{
    const fsdp_pickle_value *from;
    *known = true;
    if (item->dtype_name)
        return number_of(run, item, value, known);
    FSDP_TRY(fsdp_source_value(run->optim->source, item, &from));
    return fsdp_state_read_plain(from, &run->arena, value, known);
}
