/* Human numbers, text widths and tables. */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/alloc_testing.h"
#include "src/evaluate/rouge_report.h"
#include "src/report/human.h"
#include "src/report/table.h"
#include "src/report/terminal.h"
#include "tests/test.h"

TEST(sizes_have_four_digits)
{
    ASSERT_STR(fsdp_human_bytes(0).text, "0 B");
    ASSERT_STR(fsdp_human_bytes(1023).text, "1023 B");
    ASSERT_STR(fsdp_human_bytes(1024).text, "1.000 KiB");
    ASSERT_STR(fsdp_human_bytes(12943360).text, "12.34 MiB");
    ASSERT_STR(fsdp_human_bytes(1023 * 1048576LL).text, "1023 MiB");
    ASSERT_STR(fsdp_human_bytes(1073741823).text, "1.000 GiB");
    ASSERT_STR(fsdp_human_bytes(-2048).text, "-2.000 KiB");
    ASSERT_STR(fsdp_human_bytes(INT64_MAX).text, "8.000 EiB");
    ASSERT_STR(fsdp_human_bytes(INT64_MIN).text, "-8.000 EiB");
}

TEST(durations_change_their_unit_where_rounding_does)
{
    ASSERT_STR(fsdp_human_duration(0).text, "0 s");
    ASSERT_STR(fsdp_human_duration(1.234e-5).text, "12.34 us");
    ASSERT_STR(fsdp_human_duration(0.1234).text, "123.4 ms");
    ASSERT_STR(fsdp_human_duration(0.99999).text, "1.000 s");
    ASSERT_STR(fsdp_human_duration(59.994).text, "59.99 s");
    ASSERT_STR(fsdp_human_duration(59.996).text, "1 min 00 s");
    ASSERT_STR(fsdp_human_duration(3599.6).text, "1 h 00 min");
    ASSERT_STR(fsdp_human_duration(100000).text, "1 d 03 h");
    ASSERT_STR(fsdp_human_duration((double)NAN).text, "?");
    ASSERT_STR(fsdp_human_duration((double)INFINITY).text, "?");
}

TEST(counts_take_decimal_units)
{
    ASSERT_STR(fsdp_human_count(0).text, "0");
    ASSERT_STR(fsdp_human_count(999).text, "999");
    ASSERT_STR(fsdp_human_count(7.2134).text, "7.213");
    ASSERT_STR(fsdp_human_count(1000).text, "1.000 k");
    ASSERT_STR(fsdp_human_count(999960).text, "1.000 M");
    ASSERT_STR(fsdp_human_count(60506624).text, "60.51 M");
}

TEST(widths_are_those_of_a_terminal)
{
    ASSERT_INT(fsdp_text_columns("plain"), 5);
    ASSERT_INT(fsdp_text_columns("na\u00efve e\u0301"), 7);
    ASSERT_INT(fsdp_text_columns("\u8a13\u7df4"), 4);
    ASSERT_INT(fsdp_text_columns("\x1b[34mblue\x1b[0m"), 4);
    ASSERT_INT(fsdp_text_columns("\xff\xc3"), 2);
    ASSERT_INT(fsdp_text_fit("\u8a13\u7df4", 3), 3);
    ASSERT_INT(fsdp_text_fit("\x1b[34mblue\x1b[0m", 2), 7);
    ASSERT_INT(fsdp_text_fit("abc", 9), 3);
}

static char *print(fsdp_table *table, fsdp_table_style style)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    fsdp_status status = fsdp_table_print(table, file, style);
    fclose(file);
    if (status == FSDP_OK)
        return text;
    free(text);
    return NULL;
}

TEST(tables_align_their_columns)
{
    fsdp_table *table;
    ASSERT_OK(fsdp_table_create(2, &table));
    fsdp_table_column(table, 0, "rank", FSDP_TABLE_LEFT);
    fsdp_table_column(table, 1, "peak", FSDP_TABLE_RIGHT);
    fsdp_table_row(table);
    fsdp_table_cell(table, "%d", 0);
    fsdp_table_cell(table, "%s", fsdp_human_bytes(12943360).text);
    fsdp_table_rule(table);
    fsdp_table_row(table);
    fsdp_table_cell(table, "\u8a13\nx");
    char *ascii = print(table, FSDP_TABLE_ASCII), *box = print(table, FSDP_TABLE_BOX);
    ASSERT_STR(ascii, "+------+-----------+\n"
                      "| rank |      peak |\n"
                      "+------+-----------+\n"
                      "| 0    | 12.34 MiB |\n"
                      "+------+-----------+\n"
                      "| \u8a13 x |           |\n"
                      "+------+-----------+\n");
    ASSERT(box && strstr(box, "\u2502 rank \u2502      peak \u2502\n\u251c\u2500"));
    free(ascii);
    free(box);
    fsdp_table_destroy(table);
}

TEST(a_row_with_too_many_cells_is_an_error)
{
    fsdp_table *table;
    ASSERT_OK(fsdp_table_create(1, &table));
    fsdp_table_row(table);
    fsdp_table_cell(table, "a");
    fsdp_table_cell(table, "b");
    ASSERT_ERROR(fsdp_table_print(table, stdout, FSDP_TABLE_ASCII), FSDP_ERR_STATE, "1 columns");
    fsdp_table_destroy(table);
}

TEST(a_table_survives_failed_allocations)
{
    for (long n = 2; n < 9; n++) {
        fsdp_table *table;
        fsdp_alloc_fail_at(n);
        if (fsdp_table_create(2, &table) != FSDP_OK)
            continue;
        fsdp_table_column(table, 0, "a", FSDP_TABLE_LEFT);
        fsdp_table_row(table);
        fsdp_table_cell(table, "x");
        char *text = print(table, FSDP_TABLE_ASCII);
        fsdp_alloc_fail_at(0);
        ASSERT(!text == (n <= 8));
        free(text);
        fsdp_table_destroy(table);
    }
}

TEST(the_rouge_report_sets_predictions_beside_the_best_constant)
{
    static const char *const references[] = {"a b c d", "a b\nx", "c"};
    static const char *const before[] = {"q", "q", "q"}, *const after[] = {"a b c", "x", "d"};
    static const char *const candidates[] = {"c", "a b"};
    const fsdp_rouge_predictions sets[] = {{"before", before}, {"after", after}};
    const fsdp_rouge_report_options options = {candidates, 2, 2};
    fsdp_rouge of_sets[2];
    fsdp_rouge_report_scores scores = {.of_sets = of_sets};
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    setenv("LC_ALL", "C", 1);
    fsdp_status status = fsdp_rouge_report(file, references, 3, sets, 2, &options, &scores);
    fclose(file);
    ASSERT_OK(status);
    ASSERT_STR(text, "+------------------------+---------+---------+---------+\n"
                     "| held-back rows         | ROUGE-1 | ROUGE-2 | ROUGE-L |\n"
                     "+------------------------+---------+---------+---------+\n"
                     "| before                 |  0.0000 |  0.0000 |  0.0000 |\n"
                     "| after                  |  0.4524 |  0.2667 |  0.4524 |\n"
                     "+------------------------+---------+---------+---------+\n"
                     "| best constant sentence |  0.4889 |  0.3889 |  0.4889 |\n"
                     "+------------------------+---------+---------+---------+\n"
                     "the best constant sentence: a b\n"
                     "\n"
                     "  reference  a b c d\n"
                     "  before     q\n"
                     "  after      a b c\n"
                     "\n"
                     "  reference  a b x\n"
                     "  before     q\n"
                     "  after      x\n");
    ASSERT_INT(scores.best, 1);
    ASSERT_F32(of_sets[0].rouge1.fmeasure, 0);
    ASSERT_NEAR(of_sets[1].rouge1.fmeasure, (6.0 / 7 + 0.5) / 3, 1e-15);
    free(text);
}
