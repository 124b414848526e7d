/* See output_name.h. */
#include "src/data/files/output_name.h"

#include <string.h>

#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/data/files/file_names.h"

static bool ends_with_any(const char *path, const char *const *endings)
{
    for (; *endings; endings++)
        if (fsdp_name_ends_with(path, *endings))
            return true;
    return false;
}

/* Return why a file with this name is not written, or NULL. */
static const char *reason(const char *path, fsdp_output_form form)
{
    static const char *const sheets[] = {".xlsx", ".xls", ".xlsm", ".ods", NULL};
    static const char *const archives[] = {".zip", ".xz", ".bz2", ".7z", NULL};
    const fsdp_name_kind kind = fsdp_name_kind_of(path);
    if (form == FSDP_OUTPUT_FOLDER)
        return ends_with_any(path, sheets) || kind != FSDP_NAME_UNKNOWN ||
                       fsdp_name_is_compressed(path)
                   ? "the name is that of a file"
                   : NULL;
    if (ends_with_any(path, sheets))
        return "spreadsheets are not written";
    if (kind == FSDP_NAME_ARROW)
        return "Arrow and Parquet files are not written";
    if (fsdp_name_is_compressed(path) || ends_with_any(path, archives))
        return "compressed files are not written";
    if (kind == FSDP_NAME_CSV && form == FSDP_OUTPUT_JSON_LINES)
        return "the results are JSON lines, not CSV";
    if (kind == FSDP_NAME_CSV && form == FSDP_OUTPUT_LINES)
        return "the file has one text a line and is not CSV";
    if (kind == FSDP_NAME_CSV && !fsdp_name_ends_with(path, ".csv"))
        return "fields are separated by commas, not tabs";
    return NULL;
}

/* For the error about a name that reason() refuses: return the name of a form that can be written
 * instead, and set *ending to the ending of its files. For FSDP_OUTPUT_ROWS, this form is JSON
 * lines if the refused name is that of a file of JSON, Arrow or Parquet. Otherwise it is CSV, which
 * spreadsheet programs read. */
static const char *name_of(fsdp_output_form form, const char *path, const char **ending)
{
    const bool json = form == FSDP_OUTPUT_JSON_LINES ||
                      (form == FSDP_OUTPUT_ROWS && (fsdp_name_kind_of(path) == FSDP_NAME_ARROW ||
                                                    fsdp_name_kind_of(path) == FSDP_NAME_JSON));
    if (form == FSDP_OUTPUT_FOLDER) {
        *ending = "";
        return "a folder, and a name that ends in .bin a token file";
    }
    *ending = json ? ".jsonl" : form == FSDP_OUTPUT_ROWS ? ".csv" : ".txt";
    return json ? "JSON lines" : form == FSDP_OUTPUT_ROWS ? "CSV" : "one text a line";
}

fsdp_status fsdp_check_output_name(const char *flag, const char *path, fsdp_output_form form)
{
    const char *why = reason(path, form), *name = fsdp_path_name(path), *ending;
    if (!why)
        return FSDP_OK;
    const char *form_name = name_of(form, path, &ending), *dot = strchr(name + 1, '.');
    const size_t stem = dot ? (size_t)(dot - path) : strlen(path);
    return fsdp_error(FSDP_ERR_INVALID, "%s %s: %s; %s %.*s%s writes %s", flag, path, why, flag,
                      (int)stem, path, ending, form_name);
}
