/* See form_options.h. */
#include "src/data/form_options.h"

#include <string.h>

#include "src/base/assert.h"
#include "src/data/rows/rows_form.h"

const char *const fsdp_cleaning_choices[] = {"none", "wikihow", NULL};
const char *const fsdp_documents_choices[] = {"auto", "blank-line", "line", "file", NULL};
const char *const fsdp_token_dtype_choices[] = {"auto",         "uint16",       "uint8",
                                                "int32|uint32", "int64|uint64", NULL};
const char *const fsdp_label_lists_choices[] = {"auto", "indices", "multi-hot|multihot", NULL};
const char *const fsdp_problem_type_choices[] = {
    "auto", "single_label_classification|single-label|single-label-classification", "regression",
    "multi_label_classification|multi-label|multi-label-classification", NULL};
const char *const fsdp_packing_choices[] = {"none|false|no", "wrapped|concat",
                                            "bfd|true|yes|best-fit|best_fit", "first-fit|first_fit",
                                            NULL};

void fsdp_form_options_derive(fsdp_form_options *form, const fsdp_options *options)
{
    form->asked_for.cleaning = fsdp_options_asked_for(options, "cleaning");
    form->asked_for.delimiter = fsdp_options_asked_for(options, "delimiter");
    form->asked_for.csv_quotes = fsdp_options_asked_for(options, "csv-quotes");
    form->asked_for.json_field = fsdp_options_asked_for(options, "json-field");
    form->asked_for.documents = fsdp_options_asked_for(options, "document-separator");
    form->asked_for.token_dtype = fsdp_options_asked_for(options, "token-dtype");
    form->asked_for.packing = fsdp_options_asked_for(options, "packing");
}

/* Return the character that --delimiter names, or 0 if it names none. */
static char delimiter_of(const char *text)
{
    static const struct {
        const char *name;
        char delimiter;
    } names[] = {{"comma", ','}, {"tab", '\t'},      {"\\t", '\t'},
                 {"bar", '|'},   {"semicolon", ';'}, {"pipe", '|'}};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++)
        if (strcmp(text, names[i].name) == 0)
            return names[i].delimiter;
    const bool usable =
        strlen(text) == 1 && !strchr("\"\r\n", *text) && !((unsigned char)*text & 0x80);
    return usable ? *text : 0;
}

fsdp_status fsdp_form_options_check(const fsdp_form_options *form)
{
    if (form->delimiter && !delimiter_of(form->delimiter))
        return fsdp_error(FSDP_ERR_INVALID,
                          "--delimiter '%s': expected comma, tab, semicolon, bar or one character "
                          "other than a quote",
                          form->delimiter);
    if (!form->source_lang != !form->target_lang)
        return fsdp_error(FSDP_ERR_INVALID, "--%s-lang needs --%s-lang: a translation has both",
                          form->source_lang ? "source" : "target",
                          form->source_lang ? "target" : "source");
    if (form->source_lang && (!*form->source_lang || !*form->target_lang))
        return fsdp_error(FSDP_ERR_INVALID, "--source-lang or --target-lang is empty");
    if (form->source_lang && strcmp(form->source_lang, form->target_lang) == 0)
        return fsdp_error(FSDP_ERR_INVALID, "--source-lang and --target-lang are both '%s'",
                          form->source_lang);
    return FSDP_OK;
}

void fsdp_form_options_apply(const fsdp_form_options *form, fsdp_dataset_options *o)
{
    o->delimiter = form->delimiter ? delimiter_of(form->delimiter) : 0;
    o->no_csv_quotes = !form->csv_quotes;
    o->source_lang = form->source_lang;
    o->target_lang = form->target_lang;
    o->text_pair_column = form->text_pair_column;
    o->label_column = form->label_column;
    o->json_field = form->json_field;
    o->documents = (fsdp_documents)form->documents;
    o->token_dtype = (fsdp_token_dtype)form->token_dtype;
    o->packing = (fsdp_packing)form->packing;
    o->label_lists = (fsdp_label_lists)form->label_lists;
}

fsdp_status fsdp_form_options_check_uses(const fsdp_form_options *form, unsigned uses,
                                         const char *path)
{
    const struct {
        bool asked_for;
        unsigned use;
        const char *flag, *rows;
    } options[] = {
        {form->asked_for.cleaning && form->cleaning, FSDP_USES_CLEANING, "cleaning",
         "for rows that are pairs of texts"},
        {form->source_lang, FSDP_USES_SOURCE_COLUMN, "source-lang", "for rows that are texts"},
        {form->text_pair_column, FSDP_USES_CLASSES, "text-pair-column", "for texts with classes"},
        {form->label_column, FSDP_USES_CLASSES, "label-column", "for texts with classes"},
        {form->asked_for.delimiter, FSDP_USES_CSV, "delimiter", "for CSV"},
        {form->asked_for.csv_quotes, FSDP_USES_CSV, "csv-quotes", "for CSV"},
        {form->asked_for.json_field, FSDP_USES_JSON, "json-field", "for JSON"},
        {form->asked_for.documents, FSDP_USES_DOCUMENTS, "document-separator", "for plain text"},
        {form->asked_for.token_dtype, FSDP_USES_DTYPE, "token-dtype",
         "for token files without a header"},
        {form->asked_for.packing && form->packing, FSDP_USES_PACKING, "packing",
         "for rows of CSV and JSON of --task causal-lm"}};
    for (size_t i = 0; i < FSDP_LENGTH(options); i++)
        if (options[i].asked_for && !(uses & options[i].use))
            return fsdp_error(FSDP_ERR_INVALID, "--%s is %s; %s is something else", options[i].flag,
                              options[i].rows, path);
    return FSDP_OK;
}
