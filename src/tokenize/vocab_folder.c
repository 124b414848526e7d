/* See vocab_folder.h. */
#include "src/tokenize/vocab_folder.h"

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/base/str.h"

/* ---- tokenizer.json ---- */

static void put_added_tokens(fsdp_json_node root, const fsdp_option_list *special)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip", "normalized"};
    const fsdp_json_node list = fsdp_json_set_array(root, "added_tokens");
    for (size_t i = 0; i < special->count; i++) {
        const fsdp_json_node token = fsdp_json_append_object(list);
        fsdp_json_set_i64(token, "id", (int64_t)i);
        fsdp_json_set_str(token, "content", special->items[i]);
        for (size_t f = 0; f < sizeof flags / sizeof *flags; f++)
            fsdp_json_set_bool(token, flags[f], false);
        fsdp_json_set_bool(token, "special", true);
    }
}

static void put_byte_level(fsdp_json_node node, bool trim_offsets, bool use_regex)
{
    fsdp_json_set_str(node, "type", "ByteLevel");
    fsdp_json_set_bool(node, "add_prefix_space", false);
    fsdp_json_set_bool(node, "trim_offsets", trim_offsets);
    fsdp_json_set_bool(node, "use_regex", use_regex);
}

/* Write the pre-tokenizer. ByteLevel alone splits texts by GPT-2's regular expression. For another
 * regular expression, a Split with this expression is put before ByteLevel. */
static void put_pre_tokenizer(fsdp_json_node root, fsdp_word_pattern pattern)
{
    const fsdp_json_node pre = fsdp_json_set_object(root, "pre_tokenizer");
    if (pattern == FSDP_WORDS_GPT2) {
        put_byte_level(pre, true, true);
        return;
    }
    fsdp_json_set_str(pre, "type", "Sequence");
    const fsdp_json_node list = fsdp_json_set_array(pre, "pretokenizers");
    const fsdp_json_node split = fsdp_json_append_object(list);
    fsdp_json_set_str(split, "type", "Split");
    fsdp_json_set_str(fsdp_json_set_object(split, "pattern"), "Regex",
                      fsdp_word_pattern_text(pattern));
    fsdp_json_set_str(split, "behavior", "Isolated");
    fsdp_json_set_bool(split, "invert", false);
    put_byte_level(fsdp_json_append_object(list), false, false);
}

/* Write each merge as one string, "left right". All versions of the tokenizers library read this
 * form. */
static fsdp_status put_merges(fsdp_json_node model, const fsdp_bpe_learned *learned)
{
    const fsdp_json_node list = fsdp_json_set_array(model, "merges");
    fsdp_str text = {0};
    for (size_t i = 0; i < learned->n_merges && !text.failed; i++) {
        size_t length;
        const fsdp_bpe_merge *m = &learned->merges[i];
        text.len = 0;
        fsdp_str_printf(&text, "%s", fsdp_vocabulary_text(learned->vocabulary, m->left, &length));
        fsdp_str_printf(&text, " %s", fsdp_vocabulary_text(learned->vocabulary, m->right, &length));
        if (!text.failed)
            fsdp_json_append_str(list, text.data);
    }
    const bool failed = text.failed;
    fsdp_str_fini(&text);
    return failed ? fsdp_error_nomem() : FSDP_OK;
}

static fsdp_status put_model(fsdp_json_node root, const fsdp_bpe_learned *learned)
{
    const fsdp_json_node model = fsdp_json_set_object(root, "model");
    fsdp_json_set_str(model, "type", "BPE");
    fsdp_json_set_str(model, "dropout", NULL);
    fsdp_json_set_str(model, "unk_token", NULL);
    fsdp_json_set_str(model, "continuing_subword_prefix", NULL);
    fsdp_json_set_str(model, "end_of_word_suffix", NULL);
    fsdp_json_set_bool(model, "fuse_unk", false);
    fsdp_json_set_bool(model, "byte_fallback", false);
    fsdp_json_set_bool(model, "ignore_merges", false);
    const fsdp_json_node vocab = fsdp_json_set_object(model, "vocab");
    for (int32_t id = 0; id < fsdp_vocabulary_size(learned->vocabulary); id++) {
        size_t length;
        fsdp_json_set_i64(vocab, fsdp_vocabulary_text(learned->vocabulary, id, &length), id);
    }
    return put_merges(model, learned);
}

static fsdp_status write_tokenizer(const char *path, const fsdp_bpe_learned *learned,
                                   const fsdp_option_list *special, fsdp_word_pattern pattern)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_create(path, &doc));
    const fsdp_json_node root = fsdp_json_root(doc);
    fsdp_json_set_str(root, "version", "1.0");
    fsdp_json_set_str(root, "truncation", NULL);
    fsdp_json_set_str(root, "padding", NULL);
    put_added_tokens(root, special);
    fsdp_json_set_str(root, "normalizer", NULL);
    put_pre_tokenizer(root, pattern);
    put_byte_level(fsdp_json_set_object(root, "post_processor"), false, true);
    put_byte_level(fsdp_json_set_object(root, "decoder"), true, true);
    fsdp_status status = put_model(root, learned);
    if (status == FSDP_OK)
        status = fsdp_json_write(doc, FSDP_JSON_COMPACT, path);
    fsdp_json_destroy(doc);
    return status;
}

/* ---- tokenizer_config.json ---- */

static fsdp_status write_config(const char *path, const fsdp_option_list *special)
{
    static const char *const names[] = {"bos_token", "eos_token", "pad_token"};
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_create(path, &doc));
    const fsdp_json_node root = fsdp_json_root(doc);
    fsdp_json_set_str(root, "tokenizer_class", "PreTrainedTokenizerFast");
    fsdp_json_set_bool(root, "clean_up_tokenization_spaces", false);
    for (size_t i = 0; i < sizeof names / sizeof *names && special->count; i++)
        fsdp_json_set_str(root, names[i], special->items[0]);
    const fsdp_status status = fsdp_json_write(doc, FSDP_JSON_PRETTY, path);
    fsdp_json_destroy(doc);
    return status;
}

/* ---- the folder ---- */

/* Open the tokenizer in `dir`, so that an error in the files is found before the folder gets its
 * final name. */
static fsdp_status try_tokenizer(const char *dir)
{
    fsdp_tokenizer *tokenizer;
    FSDP_TRY(fsdp_tokenizer_open(dir, &tokenizer));
    fsdp_tokenizer_close(tokenizer);
    return FSDP_OK;
}

static fsdp_status write_files(const char *dir, const fsdp_bpe_learned *learned,
                               const fsdp_option_list *special, fsdp_word_pattern pattern)
{
    char *tokenizer = fsdp_path_join(dir, "tokenizer.json");
    char *config = fsdp_path_join(dir, "tokenizer_config.json");
    fsdp_status status = tokenizer && config ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = write_tokenizer(tokenizer, learned, special, pattern);
    if (status == FSDP_OK)
        status = write_config(config, special);
    if (status == FSDP_OK)
        status = try_tokenizer(dir);
    fsdp_free(tokenizer);
    fsdp_free(config);
    return status;
}

fsdp_status fsdp_vocab_folder_write(const char *path, const fsdp_bpe_learned *learned,
                                    const fsdp_option_list *special_tokens,
                                    fsdp_word_pattern pattern)
{
    fsdp_atomic_directory *directory;
    FSDP_TRY(fsdp_atomic_directory_begin(path, FSDP_EXISTING_REFUSE, &directory));
    const fsdp_status status =
        write_files(fsdp_atomic_directory_path(directory), learned, special_tokens, pattern);
    if (status == FSDP_OK)
        return fsdp_atomic_directory_commit(directory);
    fsdp_atomic_directory_discard(directory);
    return status;
}
