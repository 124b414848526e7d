/* Prints a table of ROUGE scores, then some references with their predictions. These references are
 * spread evenly over all rows. */
#include <errno.h>
#include <string.h>

#include "src/evaluate/rouge_report.h"
#include "src/report/table.h"
#include "src/report/terminal.h"

enum {
    /* maximum width of a printed text; longer texts are cut */
    EXAMPLE_COLUMNS = 100
};

static void add_row(fsdp_table *table, const char *name, const fsdp_rouge *rouge)
{
    fsdp_table_row(table);
    fsdp_table_cell(table, "%s", name);
    fsdp_table_cell(table, "%.4f", rouge->rouge1.fmeasure);
    fsdp_table_cell(table, "%.4f", rouge->rouge2.fmeasure);
    fsdp_table_cell(table, "%.4f", rouge->rougeL.fmeasure);
}

static fsdp_status score_and_print(fsdp_table *table, FILE *file, const char *const *references,
                                   size_t n, const fsdp_rouge_predictions *sets, size_t n_sets,
                                   const fsdp_rouge_report_options *options,
                                   fsdp_rouge_report_scores *scores)
{
    fsdp_table_column(table, 0, "held-back rows", FSDP_TABLE_LEFT);
    fsdp_table_column(table, 1, "ROUGE-1", FSDP_TABLE_RIGHT);
    fsdp_table_column(table, 2, "ROUGE-2", FSDP_TABLE_RIGHT);
    fsdp_table_column(table, 3, "ROUGE-L", FSDP_TABLE_RIGHT);
    for (size_t i = 0; i < n_sets; i++) {
        fsdp_rouge rouge;
        FSDP_TRY(fsdp_rouge_mean(references, sets[i].predictions, n, &rouge));
        add_row(table, sets[i].name, &rouge);
        if (scores->of_sets)
            scores->of_sets[i] = rouge;
    }
    if (options->n_candidates) {
        FSDP_TRY(fsdp_rouge_best_constant(references, n, options->candidates, options->n_candidates,
                                          &scores->best, &scores->constant));
        fsdp_table_rule(table);
        add_row(table, "best constant sentence", &scores->constant);
    }
    return fsdp_table_print(table, file, FSDP_TABLE_AUTO);
}

/* Print a name and a text on one line. Line breaks in the text become spaces, and a long text is
 * cut. */
static void print_text(FILE *file, const char *name, size_t name_width, const char *text)
{
    size_t bytes = fsdp_text_fit(text, EXAMPLE_COLUMNS);
    fprintf(file, "  %s%*s  ", name, (int)(name_width - fsdp_text_columns(name)), "");
    for (size_t i = 0; i < bytes; i++)
        fputc((unsigned char)text[i] < ' ' ? ' ' : text[i], file);
    fprintf(file, "%s\n", text[bytes] ? "..." : "");
}

static void print_examples(FILE *file, const char *const *references, size_t n,
                           const fsdp_rouge_predictions *sets, size_t n_sets, size_t examples)
{
    size_t width = strlen("reference");
    for (size_t i = 0; i < n_sets; i++)
        if (fsdp_text_columns(sets[i].name) > width)
            width = fsdp_text_columns(sets[i].name);
    examples = examples < n ? examples : n;
    for (size_t i = 0; i < examples; i++) {
        size_t row = i * n / examples;
        fprintf(file, "\n");
        print_text(file, "reference", width, references[row]);
        for (size_t j = 0; j < n_sets; j++)
            print_text(file, sets[j].name, width, sets[j].predictions[row]);
    }
}

fsdp_status fsdp_rouge_report(FILE *file, const char *const *references, size_t n,
                              const fsdp_rouge_predictions *sets, size_t n_sets,
                              const fsdp_rouge_report_options *options,
                              fsdp_rouge_report_scores *scores)
{
    fsdp_rouge_report_scores unwanted = {0};
    scores = scores ? scores : &unwanted;
    fsdp_table *table;
    if (!n)
        return fsdp_error(FSDP_ERR_INVALID, "ROUGE of no texts");
    FSDP_TRY(fsdp_table_create(4, &table));
    fsdp_status status = score_and_print(table, file, references, n, sets, n_sets, options, scores);
    fsdp_table_destroy(table);
    if (status != FSDP_OK)
        return status;
    if (options->n_candidates)
        fprintf(file, "the best constant sentence: %s\n", options->candidates[scores->best]);
    print_examples(file, references, n, sets, n_sets, options->examples);
    if (fflush(file) != 0)
        return fsdp_error(FSDP_ERR_IO, "printing a report: %s", strerror(errno));
    return FSDP_OK;
}
