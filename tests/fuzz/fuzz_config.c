/* libFuzzer over config.json: `make fuzz FUZZ_S=60`. Each family's reader gets the document,
 * whatever its model_type says; sizes in a document that loads are within the limit on which
 * products of two sizes rely. */
#include <stdlib.h>

#include "src/models/bert_config.h"
#include "src/models/config_json.h"
#include "src/models/gpt2_config.h"
#include "src/models/llama_config.h"
#include "src/models/t5_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_sizes(const int64_t *sizes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (sizes[i] < 1 || sizes[i] > FSDP_CONFIG_MAX_DIM)
            abort();
}
#define CHECK_SIZES(...)                                                                           \
    check_sizes((const int64_t[]){__VA_ARGS__}, sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t))

static void read_t5(fsdp_json *doc)
{
    fsdp_t5_config c;
    if (fsdp_t5_config_parse(doc, &c) != FSDP_OK)
        return;
    CHECK_SIZES(c.vocab_size, c.d_model, c.d_ff, c.d_kv, c.num_layers, c.num_decoder_layers,
                c.num_heads, c.relative_attention_num_buckets, c.relative_attention_max_distance);
    if (c.decoder_start_token_id >= c.vocab_size || c.pad_token_id >= c.vocab_size)
        abort();
}

static void read_llama(fsdp_json *doc)
{
    fsdp_llama_config c;
    if (fsdp_llama_config_parse(doc, &c) != FSDP_OK)
        return;
    CHECK_SIZES(c.vocab_size, c.hidden_size, c.intermediate_size, c.num_hidden_layers,
                c.num_attention_heads, c.num_key_value_heads, c.head_dim,
                c.max_position_embeddings);
    if (c.num_attention_heads % c.num_key_value_heads || c.head_dim % 2)
        abort();
}

static void read_gpt2(fsdp_json *doc)
{
    fsdp_gpt2_config c;
    if (fsdp_gpt2_config_parse(doc, &c) != FSDP_OK)
        return;
    CHECK_SIZES(c.vocab_size, c.n_embd, c.n_layer, c.n_head, c.n_positions, c.n_inner);
    if (c.n_embd % c.n_head)
        abort();
}

static void read_bert(fsdp_json *doc, bool classifier)
{
    fsdp_bert_config c;
    if (fsdp_bert_config_parse(doc, classifier, &c) != FSDP_OK)
        return;
    CHECK_SIZES(c.vocab_size, c.hidden_size, c.num_hidden_layers, c.intermediate_size,
                c.num_attention_heads, c.max_position_embeddings, c.type_vocab_size);
    if (c.hidden_size % c.num_attention_heads || (classifier && c.num_labels < 1))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fsdp_json *doc;
    if (fsdp_json_parse("f", 1, (const char *)data, bytes, &doc) == FSDP_OK) {
        read_t5(doc);
        read_llama(doc);
        read_gpt2(doc);
        read_bert(doc, false);
        read_bert(doc, true);
        fsdp_json_destroy(doc);
    }
    return 0;
}
