/* See left_out.h. */
#include "src/data/left_out.h"

#include <inttypes.h>

#include "src/base/str.h"
#include "src/text/special_in_text.h"
#include "src/text/unknown_in_text.h"

void fsdp_left_out_text(const fsdp_left_out *o, int64_t rows, const char *path, char *text,
                        size_t size)
{
    fsdp_text t = {text, size};
    const char *separator = ": ";
    *text = 0;
    if (!o->cut_rows && !o->skipped_rows && !o->unused_tokens)
        return;
    fsdp_text_printf(&t, "%s", path);
    if (o->cut_rows) {
        fsdp_text_printf(&t, "%s%" PRId64 " of %s%" PRId64 " rows are cut, by %" PRId64 " tokens",
                         separator, o->cut_rows, o->counted_rows < rows ? "the first " : "",
                         o->counted_rows, o->cut_tokens);
        separator = "; ";
    }
    if (o->skipped_rows) {
        fsdp_text_printf(&t, "%s%" PRId64 " rows are left out", separator, o->skipped_rows);
        separator = "; ";
    }
    if (o->unused_tokens)
        fsdp_text_printf(&t, "%s%" PRId64 " tokens at the ends of files do not fill a row",
                         separator, o->unused_tokens);
}

void fsdp_special_rows_text(const fsdp_left_out *o, int64_t rows, const char *path, char *text,
                            size_t size)
{
    fsdp_text t = {text, size};
    *text = 0;
    if (!o->special_rows)
        return;
    fsdp_text_printf(&t,
                     "%s: special tokens are in the texts of %" PRId64 " of %s%" PRId64
                     " rows, first '%s' in row %" PRId64,
                     path, o->special_rows, o->counted_rows < rows ? "the first " : "",
                     o->counted_rows, o->special_token, o->special_row + 1);
    if (o->special_file)
        fsdp_text_printf(&t, " of %s", o->special_file);
    fsdp_text_printf(&t, "; " FSDP_SPECIAL_BECOMES_ID);
}

void fsdp_unknown_rows_text(const fsdp_left_out *o, int64_t rows, const char *path, char *text,
                            size_t size)
{
    fsdp_text t = {text, size};
    *text = 0;
    if (!o->unknown_rows)
        return;
    fsdp_text_printf(&t, "%s: %" PRId64 " of %s%" PRId64 " rows " FSDP_UNKNOWN_SAYS " ", path,
                     o->unknown_rows, o->counted_rows < rows ? "the first " : "", o->counted_rows);
    fsdp_unknown_examples_print(&o->unknown_examples, &t);
    fsdp_text_printf(&t, "in %s%srow %" PRId64, o->unknown_place ? o->unknown_place : "",
                     o->unknown_place ? " of " : "", o->unknown_row + 1);
    if (o->unknown_file)
        fsdp_text_printf(&t, " of %s", o->unknown_file);
    fsdp_text_printf(&t, "; " FSDP_UNKNOWN_BECOMES);
}
