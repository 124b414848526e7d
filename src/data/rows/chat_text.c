/* See chat_text.h. */
#include "src/data/rows/chat_text.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/data/rows/causal_text.h"
#include "src/data/rows/sharegpt.h"
#include "src/text/chat/chat.h"
#include "src/text/special_in_text.h"

static bool is_list_of_objects(fsdp_json_node row, const char *key)
{
    const fsdp_json_node list = fsdp_json_find(row, key);
    return fsdp_json_kind_of(list) == FSDP_JSON_ARRAY &&
           (fsdp_json_len(list) == 0 ||
            fsdp_json_kind_of(fsdp_json_at(list, 0)) == FSDP_JSON_OBJECT);
}

static bool has_messages(fsdp_json_node row)
{
    return fsdp_json_has(row, "messages");
}

bool fsdp_is_chat_row(fsdp_json_node row)
{
    if (has_messages(row))
        return fsdp_json_kind_of(fsdp_json_find(row, "messages")) == FSDP_JSON_ARRAY;
    return (is_list_of_objects(row, "prompt") && is_list_of_objects(row, "completion")) ||
           fsdp_is_sharegpt_row(row);
}

const char *const *fsdp_chat_row_keys(fsdp_json_node row)
{
    static const char *const whole[] = {"messages", "tools", "documents", "chat_template_kwargs",
                                        NULL};
    static const char *const parts[] = {"prompt",    "completion",           "tools",
                                        "documents", "chat_template_kwargs", NULL};
    static const char *const sharegpt[] = {"conversations",        "system", "tools", "documents",
                                           "chat_template_kwargs", NULL};
    return has_messages(row) ? whole : fsdp_is_sharegpt_row(row) ? sharegpt : parts;
}

/* Restrict the spans of `text` to their parts inside the only span of `other`. */
static void intersect(fsdp_chat_text *text, const fsdp_chat_text *other)
{
    const fsdp_chat_span within = other->spans[0];
    size_t kept = 0;
    for (size_t i = 0; i < text->n_spans; i++) {
        fsdp_chat_span span = text->spans[i];
        span.begin = span.begin < within.begin ? within.begin : span.begin;
        span.end = span.end > within.end ? within.end : span.end;
        if (span.begin < span.end)
            text->spans[kept++] = span;
    }
    text->n_spans = kept;
}

/* Render the conversation. Set *all to true if all of it has a loss; otherwise text->spans are the
 * parts that have a loss. */
static fsdp_status render(const fsdp_chat_rows *chat, fsdp_json_node row, fsdp_chat_text *text,
                          bool *all)
{
    fsdp_chat_options options = {.kwargs = chat->kwargs};
    fsdp_chat_text completion = {0};
    const bool completion_only = has_messages(row)
                                     ? chat->completion_loss == FSDP_COMPLETION_LOSS_ONLY
                                     : chat->completion_loss != FSDP_COMPLETION_LOSS_ALL;
    *all = !chat->assistant_only_loss && !completion_only;
    options.spans = chat->assistant_only_loss ? FSDP_CHAT_SPANS_ASSISTANT
                    : completion_only         ? FSDP_CHAT_SPANS_COMPLETION
                                              : FSDP_CHAT_SPANS_NONE;
    FSDP_TRY(fsdp_chat_render_node(chat->chat_template, row, &options, text));
    if (!chat->assistant_only_loss || !completion_only)
        return FSDP_OK;
    options.spans = FSDP_CHAT_SPANS_COMPLETION;
    const fsdp_status status =
        fsdp_chat_render_node(chat->chat_template, row, &options, &completion);
    if (status == FSDP_OK)
        intersect(text, &completion);
    fsdp_chat_text_fini(&completion);
    return status;
}

/* Set the label of each token that overlaps a span to the token's id, and all other labels to
 * FSDP_IGNORE_INDEX. Tokens and spans are sorted by position. */
static fsdp_status set_labels(const fsdp_chat_text *text, const fsdp_encoding *encoding,
                              fsdp_token_list *labels)
{
    size_t at = 0;
    FSDP_TRY(fsdp_token_list_set(labels, encoding->ids.ids, encoding->ids.len));
    for (size_t i = 0; i < labels->len; i++) {
        const fsdp_token_offset token = encoding->offsets[i];
        while (at < text->n_spans && token.begin >= text->spans[at].end)
            at++;
        if (at == text->n_spans || token.end <= text->spans[at].begin)
            labels->ids[i] = FSDP_IGNORE_INDEX;
    }
    return FSDP_OK;
}

static void truncate_list(fsdp_token_list *list, int64_t length)
{
    if ((int64_t)list->len > length)
        list->len = (size_t)length;
}

static void search_value(const fsdp_tokenizer *tokenizer, fsdp_json_node content)
{
    const char *text;
    if (fsdp_json_kind_of(content) == FSDP_JSON_STRING &&
        fsdp_json_get_str(content, NULL, &text) == FSDP_OK)
        fsdp_special_in_text_search(tokenizer, text, strlen(text));
}

/* Search the content of a message, which is a text or a list of objects with texts. */
static void search_message(const fsdp_tokenizer *tokenizer, fsdp_json_node message)
{
    const fsdp_json_node content = fsdp_json_find(message, "content");
    search_value(tokenizer, content);
    for (size_t i = 0; i < fsdp_json_len(content); i++)
        search_value(tokenizer, fsdp_json_find(fsdp_json_at(content, i), "text"));
}

void fsdp_chat_search_special(const fsdp_tokenizer *tokenizer, fsdp_json_node row)
{
    static const char *const keys[] = {"messages", "prompt", "completion"};
    for (size_t i = 0; i < FSDP_LENGTH(keys); i++) {
        const fsdp_json_node list = fsdp_json_find(row, keys[i]);
        if (fsdp_json_kind_of(list) != FSDP_JSON_ARRAY)
            continue;
        for (size_t k = 0; k < fsdp_json_len(list); k++)
            search_message(tokenizer, fsdp_json_at(list, k));
    }
}

static fsdp_status encode(const fsdp_dataset_options *options, const fsdp_chat_text *text, bool all,
                          fsdp_example *example, int64_t *cut)
{
    const fsdp_encode_options how = {.no_special_tokens = true, .offsets = FSDP_OFFSETS_BYTES};
    fsdp_encoding encoding = {0};
    /* The template writes special tokens, which are not counted. fsdp_chat_search_special() counts
     * those in messages. */
    const fsdp_special_in_text counted = *fsdp_special_in_text_of_thread();
    fsdp_status status = fsdp_tokenizer_encode_pair(options->tokenizer, text->text, text->bytes,
                                                    NULL, 0, &how, &encoding);
    *fsdp_special_in_text_of_thread() = counted;
    if (status == FSDP_OK)
        status = fsdp_token_list_set(&example->source, encoding.ids.ids, encoding.ids.len);
    if (status == FSDP_OK && !all)
        status = set_labels(text, &encoding, &example->labels);
    fsdp_encoding_fini(&encoding);
    if (status != FSDP_OK)
        return status;
    const int64_t beyond = (int64_t)example->source.len - options->max_length;
    *cut = beyond > 0 ? beyond : 0;
    truncate_list(&example->source, options->max_length);
    truncate_list(&example->labels, options->max_length);
    return FSDP_OK;
}

static fsdp_status render_and_encode(const fsdp_dataset_options *options, fsdp_json_node row,
                                     fsdp_example *example, int64_t *cut, fsdp_str *whole)
{
    const fsdp_chat_rows *chat = &options->chat;
    fsdp_chat_text text = {0};
    bool all = false;
    fsdp_status status = render(chat, row, &text, &all);
    if (status == FSDP_OK && !all && text.n_spans == 0)
        status = fsdp_error(FSDP_ERR_FORMAT,
                            "nothing in this row has a loss, because it has no text of the "
                            "assistant; leave it out");
    if (status == FSDP_OK)
        status = encode(options, &text, all, example, cut);
    if (status == FSDP_OK)
        fsdp_chat_search_special(options->tokenizer, row);
    if (status == FSDP_OK && whole) {
        whole->len = 0;
        fsdp_str_append(whole, text.text, text.bytes);
    }
    fsdp_chat_text_fini(&text);
    return status;
}

fsdp_status fsdp_chat_text_encode(const fsdp_dataset_options *options, fsdp_json_node row,
                                  fsdp_example *example, int64_t *cut, fsdp_str *whole)
{
    const fsdp_chat_rows *chat = &options->chat;
    fsdp_json *converted;
    FSDP_TRY(fsdp_check_tokenizer(fsdp_json_name(row.doc), "a conversation", options));
    if (!chat->chat_template)
        return fsdp_error(FSDP_ERR_INVALID, "a conversation needs a chat template%s%s%s",
                          chat->why_no_template ? " (" : "",
                          chat->why_no_template ? chat->why_no_template : "",
                          chat->why_no_template ? ")" : "");
    if (!fsdp_is_sharegpt_row(row))
        return render_and_encode(options, row, example, cut, whole);
    FSDP_TRY(fsdp_sharegpt_convert(row, &converted));
    fsdp_status status = render_and_encode(options, fsdp_json_root(converted), example, cut, whole);
    fsdp_json_destroy(converted);
    return status;
}
