/* The functions of csv.h for builds without libcsv. Opening a CSV file fails, so the functions that
 * need an open file or a row are never called. */
#include "src/base/assert.h"
#include "src/data/csv/csv.h"

#define NO_FILE() fsdp_assert_failed("there is a CSV file", __FILE__, __LINE__)

fsdp_status fsdp_csv_open(const char *path, fsdp_csv **out)
{
    (void)out;
    return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: CSV: this build has no libcsv", path);
}

fsdp_status fsdp_csv_of_input(fsdp_input *input, const char *path, const fsdp_csv_format *format,
                              fsdp_csv **out)
{
    (void)input;
    (void)format;
    return fsdp_csv_open(path, out);
}

void fsdp_csv_close(fsdp_csv *csv)
{
    if (csv)
        NO_FILE();
}

const fsdp_csv_row *fsdp_csv_header(const fsdp_csv *csv)
{
    (void)csv;
    NO_FILE();
}

fsdp_status fsdp_csv_next(fsdp_csv *csv, fsdp_csv_row *row)
{
    (void)csv;
    (void)row;
    NO_FILE();
}

fsdp_status fsdp_csv_parse_row(const char *text, size_t bytes, const fsdp_csv_format *format,
                               fsdp_csv_row *row)
{
    (void)text;
    (void)bytes;
    (void)format;
    (void)row;
    NO_FILE();
}
