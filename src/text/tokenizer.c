/* Converts text to ids and back as the fast tokenizers of transformers do for T5 and Llama 2.
 * Encoding first finds the special tokens in the raw text. Each part between them is encoded as a
 * separate text. At the end, </s> is appended. For T5's unigram model, libsentencepiece normalises
 * the text, splits the text into words, and splits each word into pieces. If a word has several
 * pieces and none of them is a byte piece, sentencepiece_unigram.c splits this word again, and the
 * pieces of libsentencepiece are not used; sentencepiece_unigram.h explains why. For Llama's BPE
 * model, the pieces of libsentencepiece are used as they are. */
#include <fsdp/text.h>

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/file_kind.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/base/str.h"
#include "src/text/added_tokens.h"
#include "src/text/sentencepiece.h"
#include "src/text/sentencepiece_unigram.h"
#include "src/text/utf8.h"

enum {
    EXTRA_IDS = 100,                    /* default number of sentinels, as in T5 */
    EXTRA_IDS_MAX = 1000000,            /* largest number of sentinels; keeps ids far below
                                           INT32_MAX */
    MODEL_BYTES_MAX = 256 * 1024 * 1024 /* limit for a model file; the largest known file has 17
                                           MB */
};

struct fsdp_tokenizer {
    char *path; /* path of the model file */
    fsdp_sentencepiece *sp;
    fsdp_sentencepiece_unigram *unigram; /* NULL: BPE */
    int32_t pieces, vocab_size; /* pieces: number of pieces; the sentinels have the ids [pieces,
                                   vocab_size) */
    int32_t bos_id, pad_id, eos_id, unk_id;
    bool no_bos; /* fsdp_tokenizer_bos_id() returns -1, because texts do not begin with <s> */
    /* Added tokens that encoding does not support. A text that contains one is refused. */
    fsdp_added_tokens added;
};

fsdp_status fsdp_token_list_set(fsdp_token_list *list, const int32_t *ids, size_t count)
{
    if (!FSDP_GROW(list->ids, list->cap, count))
        return FSDP_ERR_NOMEM;
    if (count)
        memcpy(list->ids, ids, count * sizeof *ids);
    list->len = count;
    return FSDP_OK;
}

void fsdp_token_list_fini(fsdp_token_list *list)
{
    fsdp_free(list->ids);
    *list = (fsdp_token_list){0};
}

void fsdp_text_free(char *text)
{
    fsdp_free(text);
}

/* ---- finding the model ---- */

/* Set *model to the path of the SentencePiece model in a folder, or to NULL if the folder has none.
 * The caller owns *model. */
static fsdp_status find_in_folder(const char *folder, char **model)
{
    static const char *const names[] = {"spiece.model", "tokenizer.model"};
    *model = NULL;
    for (size_t i = 0; i < FSDP_LENGTH(names); i++) {
        char *candidate = fsdp_path_join(folder, names[i]);
        if (!candidate)
            return FSDP_ERR_NOMEM;
        if (fsdp_path_exists(candidate)) {
            *model = candidate;
            return FSDP_OK;
        }
        fsdp_free(candidate);
    }
    return FSDP_OK;
}

static fsdp_status missing_model_error(const char *folder)
{
    char *json = fsdp_path_join(folder, "tokenizer.json");
    if (!json)
        return FSDP_ERR_NOMEM;
    bool has_json = fsdp_path_is_file(json);
    fsdp_free(json);
    if (has_json)
        return fsdp_error(
            FSDP_ERR_UNSUPPORTED,
            "%s contains tokenizer.json but neither spiece.model nor tokenizer.model; "
            "only these SentencePiece files are read. For a T5, copy spiece.model "
            "(792 KB, the same for every T5) into it",
            folder);
    return fsdp_error(FSDP_ERR_NOT_FOUND, "%s holds no spiece.model and no tokenizer.model",
                      folder);
}

/* Set *model to the path of the SentencePiece model: `path` itself if that is a file, else the
 * model in the folder `path`. The caller owns *model. */
static fsdp_status find_model(const char *path, char **model)
{
    if (fsdp_path_is_directory(path)) {
        FSDP_TRY(find_in_folder(path, model));
        return *model ? FSDP_OK : missing_model_error(path);
    }
    size_t length = strlen(path);
    if (length >= 5 && strcmp(path + length - 5, ".json") == 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "tokenizer %s: only SentencePiece models are read; give the spiece.model "
                          "of the same model",
                          path);
    *model = fsdp_strdup(path);
    return *model ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* ---- reading the model's type ---- */

/* Read a varint of Protocol Buffers (least significant bits first) at *p, and move *p past it.
 * Return false if the bytes end before the varint does. */
static bool read_varint(const unsigned char **p, const unsigned char *end, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; *p < end && shift < 64; shift += 7) {
        unsigned char byte = *(*p)++;
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

typedef struct field {
    uint64_t number, value;       /* value: that of a varint field; 0 for other fields */
    const unsigned char *p, *end; /* content of a length-delimited field; p is NULL for other
                                     fields */
} field;

static bool read_field(const unsigned char **p, const unsigned char *end, field *out)
{
    uint64_t key, size;
    if (!read_varint(p, end, &key))
        return false;
    *out = (field){.number = key >> 3};
    switch (key & 7) {
    case 0:
        return read_varint(p, end, &out->value);
    case 1:
        size = 8;
        break;
    case 2:
        if (!read_varint(p, end, &size))
            return false;
        out->p = *p;
        break;
    case 5:
        size = 4;
        break;
    default:
        return false;
    }
    if (size > (uint64_t)(end - *p))
        return false;
    *p += size;
    out->end = *p;
    return true;
}

enum {
    MODEL_UNIGRAM = 1,
    MODEL_BPE = 2
};

/* Read the type of a SentencePiece model, which is ModelProto.trainer_spec.model_type in its file.
 * libsentencepiece loads models of every type and does not report the type. Return
 * FSDP_ERR_UNSUPPORTED if the type is neither unigram nor BPE. Malformed bytes are not an error
 * here, because libsentencepiece will report them when it loads the model. */
static fsdp_status read_model_type(const unsigned char *p, size_t bytes, uint64_t *out)
{
    enum {
        TRAINER_SPEC = 2,
        MODEL_TYPE = 3
    };
    static const char *const types[] = {"", "unigram", "BPE", "word", "character"};
    const unsigned char *end = p + bytes;
    uint64_t type = MODEL_UNIGRAM;
    field outer, inner;
    if (bytes == 0)
        return fsdp_error(FSDP_ERR_FORMAT, "the file is empty");
    while (read_field(&p, end, &outer)) {
        if (outer.number != TRAINER_SPEC || !outer.p)
            continue;
        while (read_field(&outer.p, outer.end, &inner))
            if (inner.number == MODEL_TYPE)
                type = inner.value;
    }
    *out = type;
    if (type == MODEL_UNIGRAM || type == MODEL_BPE)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "a SentencePiece model of type %s; unigram (T5) and BPE (Llama 2) are read",
                      type && type < FSDP_LENGTH(types) ? types[type] : "?");
}

static fsdp_status load_model(fsdp_tokenizer *tokenizer, uint64_t *type)
{
    char *bytes = NULL;
    size_t count = 0;
    FSDP_TRY(fsdp_file_read(tokenizer->path, MODEL_BYTES_MAX, &bytes, &count));
    fsdp_status status = read_model_type((const unsigned char *)bytes, count, type);
    if (status == FSDP_OK)
        status = fsdp_sentencepiece_load(bytes, count, &tokenizer->sp);
    fsdp_error_context(status, "%s", tokenizer->path);
    if (status == FSDP_ERR_FORMAT) {
        const fsdp_status other = fsdp_file_explain(tokenizer->path, "a SentencePiece model",
                                                    FSDP_WANTED_BINARY, bytes, count);
        status = other == FSDP_OK ? status : other;
    }
    fsdp_free(bytes);
    return status;
}

/* ---- special tokens ---- */

/* Return the length of `name` if `text` begins with `name`, else 0. */
static size_t match_prefix(const char *text, size_t left, const char *name)
{
    size_t length = strlen(name);
    return left >= length && memcmp(text, name, length) == 0 ? length : 0;
}

/* If `text` begins with "<extra_id_0>", "<extra_id_1>" or so on, set *number and return the length
 * of this sentinel, else return 0. The number must not have leading zeros. */
static size_t match_extra_id(const char *text, size_t left, int32_t extra_ids, int32_t *number)
{
    size_t digits = match_prefix(text, left, "<extra_id_"), i = digits;
    if (!digits)
        return 0;
    int32_t value = 0;
    while (i < left && text[i] >= '0' && text[i] <= '9' && value < extra_ids)
        value = value * 10 + (text[i++] - '0');
    bool leading_zero = i > digits + 1 && text[digits] == '0';
    if (i == digits || leading_zero || i >= left || text[i] != '>' || value >= extra_ids)
        return 0;
    *number = value;
    return i + 1;
}

/* If `text` begins with a special token, set *id to the token's id and return its length, else
 * return 0. `text` must begin with '<'. */
static size_t match_special(const fsdp_tokenizer *tokenizer, const char *text, size_t left,
                            int32_t *id)
{
    size_t length;
    int32_t number;
    if ((length = match_prefix(text, left, "</s>"))) {
        *id = tokenizer->eos_id;
    } else if ((length = match_prefix(text, left, "<unk>"))) {
        *id = tokenizer->unk_id;
    } else if (tokenizer->bos_id >= 0 && (length = match_prefix(text, left, "<s>"))) {
        *id = tokenizer->bos_id;
    } else if (tokenizer->pad_id >= 0 && (length = match_prefix(text, left, "<pad>"))) {
        *id = tokenizer->pad_id;
    } else if ((length = match_extra_id(text, left, tokenizer->vocab_size - tokenizer->pieces,
                                        &number))) {
        *id = tokenizer->vocab_size - 1 - number;
    }
    return length;
}

static bool is_special(const fsdp_tokenizer *tokenizer, int32_t id)
{
    return id == tokenizer->bos_id || id == tokenizer->pad_id || id == tokenizer->eos_id ||
           id == tokenizer->unk_id || id >= tokenizer->pieces;
}

/* ---- other files in the model's folder ---- */

/* Return true if fsdp_tokenizer_encode() never produces the added token (text, id). The encoder
 * produces only special tokens and the model's normal pieces. So the result is true if the added
 * token is neither a special token nor a normal piece. */
static bool is_not_encoded(const void *arg, const char *text, int32_t id)
{
    const fsdp_tokenizer *tokenizer = arg;
    int32_t special = -1;
    const size_t length = strlen(text);
    if (match_special(tokenizer, text, length, &special) == length && special == id)
        return false;
    return id >= tokenizer->pieces || !fsdp_sentencepiece_is_normal(tokenizer->sp, id) ||
           strcmp(fsdp_sentencepiece_piece(tokenizer->sp, id), text) != 0;
}

static fsdp_status read_config(fsdp_tokenizer *tokenizer, bool unigram, fsdp_json_node config)
{
    int64_t extra_ids = 0;
    bool bos;
    if (unigram)
        FSDP_TRY(fsdp_json_opt_i64(config, "extra_ids", 0, EXTRA_IDS_MAX, EXTRA_IDS, &extra_ids));
    FSDP_TRY(fsdp_json_opt_bool(config, "add_bos_token", true, &bos));
    tokenizer->no_bos = !bos;
    tokenizer->vocab_size = tokenizer->pieces + (int32_t)extra_ids;
    return fsdp_added_tokens_decoder(&tokenizer->added, config, is_not_encoded, tokenizer);
}

/* Read the file `folder`/`name`. If it does not exist, *doc stays NULL. */
static fsdp_status read_json_if_exists(const char *folder, const char *name, fsdp_json **doc)
{
    char *path = fsdp_path_join(folder, name);
    fsdp_status status = path ? FSDP_OK : FSDP_ERR_NOMEM;
    if (path && fsdp_path_exists(path))
        status = fsdp_json_read(path, doc);
    fsdp_free(path);
    return status;
}

/* Read tokenizer_config.json and added_tokens.json, if they exist. Both may list added tokens.
 * tokenizer_config.json may also have the number of sentinels (extra_ids), and may say whether
 * texts begin with <s> (add_bos_token). Without this number in the file, a unigram model has 100
 * sentinels, as in T5. (In the file of mT5, the number is 0.) */
static fsdp_status read_folder_files(fsdp_tokenizer *tokenizer, bool unigram)
{
    char *folder = fsdp_path_parent(tokenizer->path);
    fsdp_json *config = NULL, *added = NULL;
    fsdp_status status = folder ? FSDP_OK : FSDP_ERR_NOMEM;
    tokenizer->vocab_size = tokenizer->pieces + (unigram ? EXTRA_IDS : 0);
    if (status == FSDP_OK)
        status = read_json_if_exists(folder, "tokenizer_config.json", &config);
    if (status == FSDP_OK && config)
        status = read_config(tokenizer, unigram, fsdp_json_root(config));
    if (status == FSDP_OK)
        status = read_json_if_exists(folder, "added_tokens.json", &added);
    if (status == FSDP_OK && added)
        status = fsdp_added_tokens_map(&tokenizer->added, fsdp_json_root(added), is_not_encoded,
                                       tokenizer);
    fsdp_json_destroy(added);
    fsdp_json_destroy(config);
    fsdp_free(folder);
    return status;
}

/* ---- opening and closing ---- */

static fsdp_status load_tokenizer(fsdp_tokenizer *tokenizer)
{
    uint64_t type = MODEL_UNIGRAM;
    FSDP_TRY(load_model(tokenizer, &type));
    tokenizer->pieces = fsdp_sentencepiece_size(tokenizer->sp);
    tokenizer->bos_id = fsdp_sentencepiece_bos_id(tokenizer->sp);
    tokenizer->pad_id = fsdp_sentencepiece_pad_id(tokenizer->sp);
    tokenizer->eos_id = fsdp_sentencepiece_eos_id(tokenizer->sp);
    tokenizer->unk_id = fsdp_sentencepiece_unk_id(tokenizer->sp);
    if (tokenizer->eos_id < 0 || tokenizer->unk_id < 0)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: the model has no %s piece, so it is not T5's",
                          tokenizer->path, tokenizer->eos_id < 0 ? "</s>" : "<unk>");
    FSDP_TRY(read_folder_files(tokenizer, type == MODEL_UNIGRAM));
    return type == MODEL_BPE
               ? FSDP_OK
               : fsdp_sentencepiece_unigram_create(tokenizer->sp, &tokenizer->unigram);
}

fsdp_status fsdp_tokenizer_open(const char *path, fsdp_tokenizer **out)
{
    fsdp_tokenizer *tokenizer = fsdp_calloc(1, sizeof *tokenizer);
    if (!tokenizer)
        return FSDP_ERR_NOMEM;
    fsdp_status status = find_model(path, &tokenizer->path);
    if (status == FSDP_OK)
        status = load_tokenizer(tokenizer);
    if (status != FSDP_OK) {
        fsdp_tokenizer_close(tokenizer);
        return status;
    }
    *out = tokenizer;
    return FSDP_OK;
}

void fsdp_tokenizer_close(fsdp_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    fsdp_added_tokens_fini(&tokenizer->added);
    fsdp_sentencepiece_unigram_destroy(tokenizer->unigram);
    fsdp_sentencepiece_destroy(tokenizer->sp);
    fsdp_free(tokenizer->path);
    fsdp_free(tokenizer);
}

/* ---- encoding ---- */

static fsdp_status append_id(fsdp_token_list *list, int32_t id)
{
    if (!FSDP_GROW(list->ids, list->cap, list->len + 1))
        return FSDP_ERR_NOMEM;
    list->ids[list->len++] = id;
    return FSDP_OK;
}

/* U+2581. It represents a space in pieces. */
static const char space_mark[] = "\xE2\x96\x81";

/* The word whose pieces are being collected. A piece that begins with a space mark is the first
 * piece of a new word. */
typedef struct word {
    const fsdp_tokenizer *tokenizer;
    fsdp_token_list *list;
    fsdp_str text;
    fsdp_token_list pieces;
    /* True if the word has byte pieces. `text` then has the name of each byte piece, such as
     * "<0x0A>", in place of the byte itself. */
    bool has_bytes;
} word;

static fsdp_status finish_word(word *w)
{
    fsdp_status status = FSDP_OK;
    if (w->pieces.len == 1 || w->has_bytes)
        for (size_t i = 0; i < w->pieces.len && status == FSDP_OK; i++)
            status = append_id(w->list, w->pieces.ids[i]);
    else if (w->pieces.len > 1)
        status = fsdp_sentencepiece_unigram_encode(w->tokenizer->unigram, w->text.data, w->text.len,
                                                   w->list);
    w->text.len = w->pieces.len = 0;
    w->has_bytes = false;
    return status;
}

static fsdp_status add_piece(void *arg, const char *piece, size_t length, int32_t id)
{
    word *w = arg;
    if (!w->tokenizer->unigram)
        return append_id(w->list, id);
    if (match_prefix(piece, length, space_mark))
        FSDP_TRY(finish_word(w));
    fsdp_str_append(&w->text, piece, length);
    w->has_bytes |= fsdp_sentencepiece_byte(w->tokenizer->sp, id) >= 0;
    FSDP_TRY(append_id(&w->pieces, id));
    return w->text.failed ? fsdp_error_nomem() : FSDP_OK;
}

/* Encode a part of a text that is between special tokens. */
static fsdp_status encode_part(word *w, const char *text, size_t length)
{
    if (length == 0)
        return FSDP_OK;
    FSDP_TRY(fsdp_sentencepiece_encode(w->tokenizer->sp, text, length, add_piece, w));
    return finish_word(w);
}

/* Return an error if `text` begins with an added token. */
static fsdp_status check_no_added_token(const fsdp_tokenizer *tokenizer, const char *text,
                                        size_t left)
{
    const fsdp_added_token *added = fsdp_added_tokens_at(&tokenizer->added, text, left);
    if (!added)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "the text has '%s', a token (id %d) that tokenizer_config.json or "
                      "added_tokens.json adds to %s; only the model's own tokens are encoded",
                      added->text, (int)added->id, tokenizer->path);
}

static fsdp_status encode_parts(word *w, const char *text, size_t length, size_t most)
{
    fsdp_token_list *list = w->list;
    size_t start = 0, end = list->len + most;
    for (size_t i = 0; i < length && list->len < end;) {
        int32_t id = 0;
        FSDP_TRY(check_no_added_token(w->tokenizer, text + i, length - i));
        size_t skip = text[i] == '<' ? match_special(w->tokenizer, text + i, length - i, &id) : 0;
        if (!skip) {
            i++;
            continue;
        }
        FSDP_TRY(encode_part(w, text + start, i - start));
        FSDP_TRY(append_id(list, id));
        start = i += skip;
    }
    if (list->len < end)
        FSDP_TRY(encode_part(w, text + start, length - start));
    if (list->len > end)
        list->len = end;
    return FSDP_OK;
}

fsdp_status fsdp_tokenizer_encode(const fsdp_tokenizer *tokenizer, const char *text, size_t length,
                                  int max_length, fsdp_token_list *list)
{
    if (max_length < 0)
        return fsdp_error(FSDP_ERR_INVALID, "max_length %d: must be 0 (no limit) or more",
                          max_length);
    size_t valid = fsdp_utf8_valid_length(text, length);
    if (valid < length)
        return fsdp_error(FSDP_ERR_INVALID, "text is not UTF-8: byte 0x%02x at offset %zu",
                          (unsigned)(unsigned char)text[valid], valid);
    size_t before = list->len;
    size_t most = max_length ? (size_t)max_length - 1 : SIZE_MAX - before;
    word w = {.tokenizer = tokenizer, .list = list};
    fsdp_status status = encode_parts(&w, text, length, most);
    fsdp_str_fini(&w.text);
    fsdp_token_list_fini(&w.pieces);
    if (status == FSDP_OK)
        status = append_id(list, tokenizer->eos_id);
    if (status != FSDP_OK)
        list->len = before;
    return status;
}

/* ---- decoding ---- */

/* The text that is being decoded. */
typedef struct decoding {
    const fsdp_tokenizer *tokenizer;
    fsdp_str text, bytes; /* bytes: bytes of byte pieces that have not been appended to `text`
                             yet */
    bool first;           /* nothing has been decoded yet */
} decoding;

/* Append a piece to the text, and replace each space mark in it with a space. In the first piece of
 * a text, some marks are removed instead of being replaced. With a unigram model, all marks of the
 * first piece are removed. With a BPE model, only the first mark of the first piece is removed, and
 * any other marks in it are replaced with spaces. */
static void append_piece(decoding *d, const char *piece)
{
    const char *mark;
    bool leave_out = d->first;
    while ((mark = strstr(piece, space_mark))) {
        fsdp_str_append(&d->text, piece, (size_t)(mark - piece));
        if (!leave_out)
            fsdp_str_append(&d->text, " ", 1);
        leave_out = leave_out && d->tokenizer->unigram;
        piece = mark + sizeof space_mark - 1;
    }
    fsdp_str_append(&d->text, piece, strlen(piece));
}

/* Append the bytes of consecutive byte pieces to the text if they are UTF-8. Otherwise append
 * U+FFFD for each byte, like ByteFallback in the tokenizers library. */
static void flush_bytes(decoding *d)
{
    if (d->bytes.len && fsdp_utf8_valid_length(d->bytes.data, d->bytes.len) == d->bytes.len)
        fsdp_str_append(&d->text, d->bytes.data, d->bytes.len);
    else
        for (size_t i = 0; i < d->bytes.len; i++)
            fsdp_str_append(&d->text, "\xEF\xBF\xBD", 3);
    d->bytes.len = 0;
}

static void decode_id(decoding *d, int32_t id)
{
    const fsdp_tokenizer *tokenizer = d->tokenizer;
    int byte = id < tokenizer->pieces ? fsdp_sentencepiece_byte(tokenizer->sp, id) : -1;
    if (byte > 0) { /* texts contain no NUL */
        fsdp_str_append(&d->bytes, &(char){(char)byte}, 1);
    } else {
        flush_bytes(d);
        if (id >= tokenizer->pieces)
            fsdp_str_printf(&d->text, "<extra_id_%d>", (int)(tokenizer->vocab_size - 1 - id));
        else if (byte < 0)
            append_piece(d, fsdp_sentencepiece_piece(tokenizer->sp, id));
    }
    d->first = false;
}

fsdp_status fsdp_tokenizer_decode(const fsdp_tokenizer *tokenizer, const int32_t *ids, size_t count,
                                  unsigned flags, char **text)
{
    decoding d = {.tokenizer = tokenizer, .first = true};
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < count && status == FSDP_OK; i++) {
        int32_t id = ids[i];
        bool known = id >= 0 && id < tokenizer->vocab_size;
        if (!known && !(flags & FSDP_DECODE_SKIP_UNKNOWN))
            status =
                fsdp_error(FSDP_ERR_INVALID, "id %d at position %zu is no token: ids are 0 to %d",
                           (int)id, i, (int)tokenizer->vocab_size - 1);
        else if (known && !((flags & FSDP_DECODE_SKIP_SPECIAL) && is_special(tokenizer, id)))
            decode_id(&d, id);
    }
    flush_bytes(&d);
    if (d.bytes.failed)
        status = fsdp_error_nomem();
    if (status == FSDP_OK && !(*text = fsdp_str_take(&d.text)))
        status = FSDP_ERR_NOMEM;
    fsdp_str_fini(&d.text);
    fsdp_str_fini(&d.bytes);
    return status;
}

/* ---- properties ---- */

int32_t fsdp_tokenizer_vocab_size(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->vocab_size;
}

int32_t fsdp_tokenizer_extra_ids(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->vocab_size - tokenizer->pieces;
}

int32_t fsdp_tokenizer_bos_id(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->no_bos ? -1 : tokenizer->bos_id;
}

int32_t fsdp_tokenizer_pad_id(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->pad_id;
}

int32_t fsdp_tokenizer_eos_id(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->eos_id;
}

int32_t fsdp_tokenizer_unk_id(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->unk_id;
}

const char *fsdp_tokenizer_path(const fsdp_tokenizer *tokenizer)
{
    return tokenizer->path;
}
