/* Writes a byte-level BPE vocabulary as a folder that transformers and this library read. */
#pragma once
#include "src/text/models/bpe_train.h"
#include "src/text/parts/word_splitter.h"
#include "src/tokenize/tokenize.h"

/* Write tokenizer.json and tokenizer_config.json. `pattern` says how texts were split into words.
 * The first special token is bos, eos and the padding. The folder appears when it is complete, or
 * not at all. */
FSDP_MUST_CHECK fsdp_status fsdp_vocab_folder_write(const char *path,
                                                    const fsdp_bpe_learned *learned,
                                                    const fsdp_option_list *special_tokens,
                                                    fsdp_word_pattern pattern);
