/* See csv_delimiter.h. */
#include "src/data/csv/csv_delimiter.h"

#include <stdio.h>

#include "src/base/assert.h"
#include "src/data/files/file_names.h"

enum {
    SAMPLE_ROWS = 50, /* number of rows by which a delimiter is judged */
    N_DELIMITERS = 4
};

const char *fsdp_csv_delimiter_name(char delimiter, char buffer[8])
{
    switch (delimiter) {
    case ',':
        return "commas";
    case '\t':
        return "tabs";
    case ';':
        return "semicolons";
    case '|':
        return "vertical bars";
    default:
        snprintf(buffer, 8, "'%c'", delimiter);
        return buffer;
    }
}

static fsdp_status open_as(fsdp_input *input, const char *path, fsdp_csv_format *format,
                           char delimiter, fsdp_csv **csv)
{
    format->delimiter = delimiter;
    FSDP_TRY(fsdp_input_rewind(input));
    return fsdp_csv_of_input(input, path, format, csv);
}

/* How a delimiter splits the beginning of a file. */
typedef struct split {
    size_t fields;      /* fields of the header; 0: it cannot be parsed */
    int64_t rows, same; /* rows that were read, and those with as many fields as the header */
} split;

/* Count the rows of `csv`. A row that cannot be parsed, or that has another number of fields than
 * the header, counts in s->rows but not in s->same. */
static fsdp_status count_rows(fsdp_csv *csv, split *s)
{
    fsdp_csv_row row = {0};
    fsdp_status status = FSDP_OK;
    while (s->rows < SAMPLE_ROWS) {
        status = fsdp_csv_next(csv, &row);
        if (status != FSDP_ERR_FORMAT && (status != FSDP_OK || !row.line))
            break;
        s->rows++;
        s->same += status == FSDP_OK;
    }
    fsdp_csv_row_fini(&row);
    return status == FSDP_ERR_FORMAT ? FSDP_OK : status;
}

/* Find out how `delimiter` splits the file, and set *fit to true if fits() accepts the header.
 * fits() may be NULL. */
static fsdp_status split_by(fsdp_input *input, const char *path, fsdp_csv_format format,
                            char delimiter, fsdp_csv_fits_fn *fits, void *arg, split *s, bool *fit)
{
    fsdp_csv *csv;
    *s = (split){0};
    *fit = false;
    fsdp_status status = open_as(input, path, &format, delimiter, &csv);
    if (status == FSDP_ERR_FORMAT)
        return FSDP_OK;
    FSDP_TRY(status);
    s->fields = fsdp_csv_header(csv)->fields;
    if (fits)
        status = fits(fsdp_csv_header(csv), arg, fit);
    if (status == FSDP_OK && (*fit || s->fields > 1))
        status = count_rows(csv, s);
    fsdp_csv_close(csv);
    return status;
}

/* Compare the fractions of rows that have the same number of fields as the header. Return true if
 * the fraction of `s` is larger than that of `best`. */
static bool splits_more_rows(const split *s, const split *best)
{
    const int64_t rows = s->rows ? s->rows : 1, best_rows = best->rows ? best->rows : 1;
    const int64_t same = s->rows ? s->same : 1, best_same = best->rows ? best->same : 1;
    return same * best_rows > best_same * rows;
}

/* A split is usable if the header has several fields and most rows have the same number of fields
 * as the header. Return true if `s` is usable and better than `best`: either `best` is not usable,
 * or splits_more_rows() prefers `s`. */
static bool is_better(const split *s, const split *best)
{
    if (s->fields < 2 || (s->rows && s->same * 2 <= s->rows))
        return false;
    if (best->fields < 2)
        return true;
    return splits_more_rows(s, best);
}

/* Set *delimiter to the candidate that splits the rows best (is_better()), or to the usual
 * delimiter if no candidate splits them. */
static fsdp_status guess(fsdp_input *input, const char *path, const fsdp_csv_format *format,
                         const char delimiters[N_DELIMITERS], char *delimiter)
{
    split best = {0};
    *delimiter = delimiters[0];
    for (size_t i = 0; i < N_DELIMITERS; i++) {
        split s;
        bool fit;
        FSDP_TRY(split_by(input, path, *format, delimiters[i], NULL, NULL, &s, &fit));
        if (!is_better(&s, &best))
            continue;
        best = s;
        *delimiter = delimiters[i];
    }
    return FSDP_OK;
}

/* Set *fitting to the delimiter with which fits() accepts the header. If fits() accepts the header
 * with several delimiters, splits_more_rows() chooses one of them. If fits() accepts the header
 * with no delimiter, set *fitting to 0. The caller then uses guess(). */
static fsdp_status find_fitting(fsdp_input *input, const char *path, fsdp_csv_format format,
                                const char delimiters[N_DELIMITERS], fsdp_csv_fits_fn *fits,
                                void *arg, char *fitting)
{
    split best = {0};
    *fitting = 0;
    for (size_t i = 0; i < N_DELIMITERS; i++) {
        split s;
        bool fit;
        FSDP_TRY(split_by(input, path, format, delimiters[i], fits, arg, &s, &fit));
        if (!fit || (*fitting && !splits_more_rows(&s, &best)))
            continue;
        best = s;
        *fitting = delimiters[i];
    }
    return FSDP_OK;
}

fsdp_status fsdp_csv_open_fitting(fsdp_input *input, const char *path, fsdp_csv_format *format,
                                  fsdp_csv_fits_fn *fits, void *arg, bool *found, fsdp_csv **out)
{
    const bool tabs = fsdp_name_ends_with(path, ".tsv") || fsdp_name_ends_with(path, ".tab");
    const char delimiters[N_DELIMITERS] = {tabs ? '\t' : ',', tabs ? ',' : '\t', ';', '|'};
    char delimiter = format->delimiter;
    if (!delimiter)
        FSDP_TRY(find_fitting(input, path, *format, delimiters, fits, arg, &delimiter));
    if (!delimiter)
        FSDP_TRY(guess(input, path, format, delimiters, &delimiter));
    *found = !format->delimiter && delimiter != delimiters[0];
    return open_as(input, path, format, delimiter, out);
}
