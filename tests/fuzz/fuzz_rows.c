/* libFuzzer over files of rows: `make fuzz FUZZ_S=60`. The first byte of the input chooses the
 * form: JSON (which may be compressed), CSV with each delimiter, tokens without a header,
 * Megatron's index next to tokens, or plain text of ids. What opens is read to its end, and
 * counted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/data.h>

#include "src/data/csv/csv.h"
#include "src/data/json/json_rows.h"
#include "tests/fuzz/folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Every row of the file is a part of it. */
static void scan_json(const char *path, const char *field)
{
    fsdp_input *input;
    fsdp_json_rows *rows;
    if (fsdp_input_open(path, &input) != FSDP_OK)
        return;
    if (fsdp_json_rows_open(input, path, field, &rows) == FSDP_OK) {
        fsdp_json_row row;
        uint64_t end = 0;
        while (fsdp_json_rows_next(rows, &row) == FSDP_OK && row.text) {
            if (row.offset < end || row.line < 1)
                abort();
            end = row.offset + row.length;
        }
        fsdp_json_rows_close(rows);
    }
    fsdp_input_close(input);
}

static void scan_csv(const char *path, char delimiter, bool no_quotes)
{
    const fsdp_csv_format format = {.delimiter = delimiter, .no_quotes = no_quotes};
    fsdp_input *input;
    fsdp_csv *csv;
    if (fsdp_input_open_seekable(path, &input) != FSDP_OK)
        return;
    if (fsdp_csv_of_input(input, path, &format, &csv) == FSDP_OK) {
        fsdp_csv_row row = {0};
        while (fsdp_csv_next(csv, &row) == FSDP_OK && row.line)
            if (row.fields != fsdp_csv_header(csv)->fields)
                abort();
        fsdp_csv_row_fini(&row);
        fsdp_csv_close(csv);
    }
    fsdp_input_close(input);
}

static void read_examples(const char *path, const fsdp_dataset_options *options)
{
    fsdp_dataset *set;
    fsdp_example e = {0};
    fsdp_left_out out;
    if (fsdp_dataset_open(path, options, &set) != FSDP_OK)
        return;
    for (int64_t i = 0; i < fsdp_dataset_len(set) && i < 1000; i++)
        if (fsdp_dataset_get(set, i, &e) == FSDP_OK)
            for (size_t k = 0; k < e.source.len; k++)
                if (e.source.ids[k] < 0 || e.source.ids[k] >= options->vocab_size)
                    abort();
    if (fsdp_dataset_left_out(set, 0, &out) != FSDP_OK || out.cut_tokens < 0)
        abort();
    fsdp_example_fini(&e);
    fsdp_dataset_close(set);
}

static void read_rows_of_file(const char *path, unsigned choice)
{
    const fsdp_dataset_options options = {
        .task = (fsdp_task)(choice % 3),
        .vocab_size = 100,
        .max_length = choice % 3 ? 7 : 0,
        .num_classes = 3,
        .packing = choice % 3 == 1 ? (fsdp_packing)(choice / 3 % 4) : FSDP_PACKING_NONE};
    read_examples(path, &options);
}

static void read_tokens(const char *path, unsigned choice)
{
    const fsdp_dataset_options options = {.task = FSDP_TASK_CAUSAL_LM,
                                          .vocab_size = 100,
                                          .max_length = 3,
                                          .token_dtype = (fsdp_token_dtype)(choice % 5)};
    read_examples(path, &options);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char delimiters[] = {0, '\t', ';', '|'};
    static const uint8_t tokens[64] = {1, 0, 2, 0, 3};
    char path[64];
    if (bytes == 0)
        return 0;
    const unsigned choice = data[0] / 4u;
    data++;
    bytes--;
    switch (data[-1] % 4) {
    case 0:
        fuzz_put("rows.json", data, bytes);
        snprintf(path, sizeof path, "%s/rows.json", fuzz_folder());
        scan_json(path, choice % 2 ? "data" : NULL);
        read_rows_of_file(path, choice);
        break;
    case 1:
        fuzz_put("rows.csv", data, bytes);
        snprintf(path, sizeof path, "%s/rows.csv", fuzz_folder());
        scan_csv(path, delimiters[choice % 4], choice / 4 % 2);
        break;
    case 2:
        fuzz_put("plain.bin", data, bytes);
        snprintf(path, sizeof path, "%s/plain.bin", fuzz_folder());
        read_tokens(path, choice);
        break;
    default:
        fuzz_put("megatron.bin", tokens, sizeof tokens);
        fuzz_put("megatron.idx", data, bytes);
        snprintf(path, sizeof path, "%s/megatron", fuzz_folder());
        read_tokens(path, choice);
    }
    return 0;
}
