/* Prints texts that the trained model generates for the first rows of the validation data, next to
 * the references. A causal model continues the prompt of a row. The prompt is the tokens at the
 * beginning of the row that do not count in the loss. If a row has no prompt, the model continues
 * the first tokens of the row. Only rank 0 reads the rows. The other ranks take part with empty
 * batches, since the model is sharded. */
#include <string.h>

#include <fsdp/data.h>

#include "src/base/alloc.h"
#include "src/base/log.h"
#include "src/comm/agree.h"
#include "src/generate/generate.h"
#include "src/train/trainer_internal.h"

enum {
    /* if a row has no prompt, the model continues the first FIRST_TOKENS tokens of the row, but at
     * most half of the row */
    FIRST_TOKENS = 32
};

size_t fsdp_example_prompt_length(const fsdp_example *example)
{
    const size_t n = example->source.len;
    size_t prompt = 0;
    while (prompt < n && prompt < example->labels.len &&
           example->labels.ids[prompt] == FSDP_IGNORE_INDEX)
        prompt++;
    if (prompt)
        return prompt;
    return n < 2 ? n : n / 2 < FIRST_TOKENS ? n / 2 : FIRST_TOKENS;
}

static fsdp_status check_prompt(const fsdp_trainer *t, const fsdp_generation_config *config,
                                int64_t row, size_t length)
{
    if (length == 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: row %lld has no token, so it has no prompt that a text could "
                          "continue: remove the row",
                          t->config->validation_data, (long long)row + 1);
    if (fsdp_generate_max_new(t->model, config, (int64_t)length) < 1)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: row %lld: its prompt of %zu tokens leaves no room for new ones in "
                          "the positions of the model and the maximum length: shorten it",
                          t->config->validation_data, (long long)row + 1, length);
    return FSDP_OK;
}

fsdp_status fsdp_check_prompts(const fsdp_trainer *t, const fsdp_generation_config *config,
                               int64_t first, int64_t step, int64_t rows)
{
    fsdp_status status = FSDP_OK;
    if (t->task != FSDP_TASK_CAUSAL_LM)
        return FSDP_OK;
    for (int64_t row = first; row < rows && status == FSDP_OK; row += step) {
        fsdp_example example = {0};
        status = fsdp_dataset_get(t->validation_set, row, &example);
        if (status == FSDP_OK)
            status = check_prompt(t, config, row, fsdp_example_prompt_length(&example));
        fsdp_example_fini(&example);
    }
    return status;
}

static fsdp_status make_batch(const fsdp_trainer *t, int64_t row, fsdp_batch **batch)
{
    fsdp_example example = {0};
    fsdp_batch_row source = {0};
    int32_t n = fsdp_trainer_is_first(t) ? 1 : 0;
    fsdp_status status = n ? fsdp_dataset_get(t->validation_set, row, &example) : FSDP_OK;
    source.source = example.source.ids;
    source.source_len =
        (int32_t)(t->task == FSDP_TASK_CAUSAL_LM ? fsdp_example_prompt_length(&example)
                                                 : example.source.len);
    if (status == FSDP_OK)
        status = fsdp_batch_create(&source, n, &t->model->info.format, batch);
    fsdp_example_fini(&example);
    return status;
}

/* Print a text on one line, with its line ends replaced by spaces. */
static void print_line(FILE *out, const char *what, const char *text)
{
    fprintf(out, "%s", what);
    for (; *text; text++)
        fputc(*text == '\n' || *text == '\r' ? ' ' : *text, out);
    fputc('\n', out);
}

static void print_ids(FILE *out, const fsdp_generated *output)
{
    fputs("generated:", out);
    for (size_t i = output->prompt_length; i < output->ids.len; i++)
        fprintf(out, " %d", (int)output->ids.ids[i]);
    fputc('\n', out);
}

static fsdp_status decode(const fsdp_trainer *t, const int32_t *ids, size_t n, char **text)
{
    return fsdp_tokenizer_decode(t->tokenizer.tokenizer, ids, n, FSDP_DECODE_TEXT, text);
}

/* Set *source to the text that the model is given, and *target to the reference. The caller owns
 * both. */
static fsdp_status example_texts(const fsdp_trainer *t, int64_t row, char **source, char **target)
{
    if (t->task != FSDP_TASK_CAUSAL_LM)
        return fsdp_dataset_texts(t->validation_set, row, source, target);
    fsdp_example example = {0};
    fsdp_status status = fsdp_dataset_get(t->validation_set, row, &example);
    const size_t prompt = fsdp_example_prompt_length(&example);
    if (status == FSDP_OK)
        status = decode(t, example.source.ids, prompt, source);
    if (status == FSDP_OK)
        status = decode(t, example.source.ids + prompt, example.source.len - prompt, target);
    fsdp_example_fini(&example);
    return status;
}

/* Print an example: source, reference and generated text. Without a tokenizer, print only the
 * generated ids. */
static fsdp_status print_example(const fsdp_trainer *t, int64_t row, const fsdp_generated *output)
{
    char *source = NULL, *target = NULL, *text = NULL;
    fprintf(t->out, "\nexample %lld\n", (long long)row + 1);
    if (!t->tokenizer.tokenizer) {
        print_ids(t->out, output);
        return FSDP_OK;
    }
    fsdp_status status = example_texts(t, row, &source, &target);
    if (status == FSDP_OK)
        status = decode(t, output->ids.ids + output->prompt_length,
                        output->ids.len - output->prompt_length, &text);
    if (status == FSDP_OK) {
        print_line(t->out, "source:    ", source);
        print_line(t->out, "reference: ", target);
        print_line(t->out, "generated: ", text);
    }
    fsdp_text_free(source);
    fsdp_text_free(target);
    fsdp_text_free(text);
    return status;
}

static fsdp_status one_example(const fsdp_trainer *t, const fsdp_generation_config *config,
                               int64_t row)
{
    fsdp_batch *batch = NULL;
    fsdp_generated *output = NULL;
    const fsdp_generate_options options = {
        .config = config, .first_row = row, .tokenizer = t->tokenizer.tokenizer};
    fsdp_status status = fsdp_agree(t->group, make_batch(t, row, &batch));
    if (status == FSDP_OK)
        status = fsdp_generate(t->model, t->device, batch, &options, &output);
    if (status == FSDP_OK && t->out)
        status = print_example(t, row, output);
    fsdp_batch_release(batch);
    fsdp_generated_free(output, output ? 1 : 0);
    return status;
}

/* Read the model's settings for generation, and check that texts can be generated with them. All
 * ranks get the same status. Collective. */
static fsdp_status read_config(const fsdp_trainer *t, fsdp_generation_config *config)
{
    const int64_t n = t->config->generate_examples, rows = fsdp_dataset_len(t->validation_set);
    fsdp_status status = fsdp_model_generation_config(t->model, config);
    if (status == FSDP_OK) {
        config->max_new_tokens = t->config->max_target_length;
        config->num_return_sequences = 1;
        status = fsdp_generate_check(t->model, config);
    }
    if (status == FSDP_OK && config->stop_strings.n_bytes && !t->tokenizer.tokenizer)
        status = fsdp_error(FSDP_ERR_UNSUPPORTED, "stop_strings need a tokenizer: %s",
                            t->tokenizer.why_none);
    fsdp_error_context(status, "generation_config.json");
    if (status == FSDP_OK && fsdp_trainer_is_first(t))
        status = fsdp_check_prompts(t, config, 0, 1, n < rows ? n : rows);
    return fsdp_agree(t->group, status);
}

fsdp_status fsdp_examples_prepare(fsdp_trainer *t)
{
    const bool first = fsdp_trainer_is_first(t);
    if (t->config->generate_examples == 0)
        return FSDP_OK;
    const fsdp_status status = read_config(t, &t->generation);
    if (status == FSDP_ERR_FORMAT || status == FSDP_ERR_INVALID || status == FSDP_ERR_UNSUPPORTED) {
        if (first)
            fsdp_log("generate", FSDP_LOG_WARN, -1, 1, "no examples: %s", fsdp_last_error());
        return FSDP_OK;
    }
    FSDP_TRY(status);
    t->makes_examples = true;
    if (!first)
        return FSDP_OK;
    fsdp_generate_warn(&t->generation);
    if (!t->tokenizer.tokenizer)
        fsdp_log("generate", FSDP_LOG_WARN, -1, 1, "examples are token ids, not texts: %s",
                 t->tokenizer.why_none);
    return FSDP_OK;
}

fsdp_status fsdp_report_examples(fsdp_trainer *t)
{
    int64_t n = t->config->generate_examples, rows = fsdp_dataset_len(t->validation_set);
    for (int64_t row = 0; row < n && row < rows; row++)
        FSDP_TRY(one_example(t, &t->generation, row));
    return FSDP_OK;
}
