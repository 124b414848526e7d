/* Command-line options that say in which form the rows of a data file are. `fsdp train` and `fsdp
 * evaluate` share these options, so both read a file in the same way. */
#pragma once
#include <stddef.h>

#include <fsdp/data.h>
#include <fsdp/options.h>

typedef struct fsdp_form_options {
    int cleaning;          /* fsdp_cleaning */
    const char *delimiter; /* a character, or its name; NULL: not given */
    bool csv_quotes;
    const char *source_lang, *target_lang;       /* NULL: not given */
    const char *text_pair_column, *label_column; /* NULL: not given */
    const char *json_field;                      /* NULL: not given */
    int documents;                               /* fsdp_documents */
    int token_dtype;                             /* fsdp_token_dtype */
    int packing;                                 /* fsdp_packing */
    int label_lists;                             /* fsdp_label_lists */
    /* The following fields are not options. Each is true if the user asked for the option of the
     * same name (fsdp_options_asked_for()). */
    struct {
        bool cleaning, delimiter, csv_quotes, json_field, documents, token_dtype, packing;
    } asked_for;
} fsdp_form_options;

extern const char *const fsdp_cleaning_choices[], *const fsdp_documents_choices[],
                                                      *const fsdp_token_dtype_choices[],
                                                          *const fsdp_packing_choices[],
                                                              *const fsdp_label_lists_choices[];
/* The word "auto", followed by the names of the values of fsdp_problem_type, in the order of that
 * enum. */
extern const char *const fsdp_problem_type_choices[];

/* Rows for a command's option table. The argument `at` is the offset of an fsdp_form_options in the
 * command's struct. The command calls fsdp_form_options_derive() in its derive() and
 * fsdp_form_options_check() in its check(). */
/* clang-format off */
#define FSDP_FORM_OPTIONS(at)                                                                      \
    {.name = "cleaning", .type = FSDP_OPTION_CHOICE, FSDP_FORM(at, cleaning), .value = "none",     \
     .choices = fsdp_cleaning_choices, .metavar = "KIND",                                          \
     .help = "seq2seq texts: wikihow removes line ends and quotes, as the FSDP tutorial's data "   \
             "set class and its WikiHow script do; none: texts are used as they are in the file"}, \
    {.name = "source-lang", .type = FSDP_OPTION_STRING, FSDP_FORM(at, source_lang),                \
     .metavar = "LANG",                                                                            \
     .help = "seq2seq: language of the source in rows like {\"translation\": {\"en\": ..., "       \
             "\"de\": ...}}, or the column of CSV of this name"},                                  \
    {.name = "target-lang", .type = FSDP_OPTION_STRING, FSDP_FORM(at, target_lang),                \
     .metavar = "LANG", .help = "language of the target"},                                         \
    {.name = "text-pair-column", .type = FSDP_OPTION_STRING, FSDP_FORM(at, text_pair_column),      \
     .metavar = "NAME",                                                                            \
     .help = "classification: column or key with the second text; --text-column has the first"},   \
    {.name = "label-column", .aliases = "label-column-name", .type = FSDP_OPTION_STRING,           \
     FSDP_FORM(at, label_column), .metavar = "NAME", .shown_default = "label, or labels",          \
     .help = "classification: column or key with the class"},                                      \
    {.name = "label-lists", .type = FSDP_OPTION_CHOICE, FSDP_FORM(at, label_lists),                \
     .value = "auto", .choices = fsdp_label_lists_choices, .metavar = "KIND",                      \
     .help = "multi-label classification: labels that are lists of numbers are the classes of a "  \
             "row (indices: [3, 14]), or a number for each class (multi-hot: [0, 1, 0]); auto: "   \
             "what all lists together show"},                                                      \
    {.name = "json-field", .aliases = "field", .type = FSDP_OPTION_STRING,                         \
     FSDP_FORM(at, json_field), .metavar = "KEY", .shown_default = "data, if the file has it",     \
     .help = "JSON files that are one object: the key of the array of rows"},                      \
    {.name = "delimiter", .aliases = "sep", .type = FSDP_OPTION_STRING, FSDP_FORM(at, delimiter),  \
     .metavar = "CHAR", .shown_default = "found by the header",                                    \
     .help = "CSV: what separates fields: comma, tab, semicolon, bar or a character"},             \
    {.name = "csv-quotes", .type = FSDP_OPTION_BOOL, FSDP_FORM(at, csv_quotes), .value = "true",   \
     .help = "CSV: fields may be in quotes; with --no-csv-quotes, a quote is an ordinary "         \
             "character, as GLUE's TSV files need it"},                                            \
    {.name = "document-separator", .type = FSDP_OPTION_CHOICE, FSDP_FORM(at, documents),           \
     .value = "auto", .choices = fsdp_documents_choices, .metavar = "WHERE",                       \
     .shown_default = "blank-line; span-corruption: line",                                         \
     .help = "plain text: where a document ends"},                                                 \
    {.name = "token-dtype", .type = FSDP_OPTION_CHOICE, FSDP_FORM(at, token_dtype),                \
     .value = "auto", .choices = fsdp_token_dtype_choices, .metavar = "TYPE",                      \
     .shown_default = "the header's; without a header uint16",                                     \
     .help = "token files without a header: type of a token"},                                     \
    {.name = "packing", .aliases = "packing-strategy", .type = FSDP_OPTION_CHOICE,                 \
     FSDP_FORM(at, packing), .value = "none", .choices = fsdp_packing_choices, .metavar = "HOW",   \
     .help = "causal-lm, rows of CSV and JSON: wrapped joins all rows and cuts them into rows of " \
             "--max-seq-length tokens; bfd (best-fit decreasing) and first-fit put whole rows "     \
             "together, which do not attend to each other"}
/* clang-format on */
#define FSDP_FORM(at, name) .offset = (at) + offsetof(fsdp_form_options, name)

void fsdp_form_options_derive(fsdp_form_options *form, const fsdp_options *options);
/* Check the values. Returns FSDP_ERR_INVALID with the option's name. */
FSDP_MUST_CHECK fsdp_status fsdp_form_options_check(const fsdp_form_options *form);
/* Set the fields of *o for which there are options here, except o->cleaning, which the caller sets.
 * The values must have been checked. */
void fsdp_form_options_apply(const fsdp_form_options *form, fsdp_dataset_options *o);
/* Return FSDP_ERR_INVALID if the user asked for an option that has no effect on the rows. `uses` is
 * what fsdp_dataset_uses() returned for the dataset of `path`. */
FSDP_MUST_CHECK fsdp_status fsdp_form_options_check_uses(const fsdp_form_options *form,
                                                         unsigned uses, const char *path);
