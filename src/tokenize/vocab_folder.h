/* Writes a byte-level BPE vocabulary as a tokenizer folder. transformers and this library can read
 * it. */
#pragma once
#include "src/text/models/bpe_train.h"
#include "src/text/parts/word_splitter.h"
#include "src/tokenize/tokenize.h"

/* Write tokenizer.json and tokenizer_config.json. `pattern` says how texts were split into words.
 * The first special token is the bos, eos and padding token. The folder gets its final name only
 * when it is complete. */
FSDP_MUST_CHECK fsdp_status fsdp_vocab_folder_write(const char *path,
                                                    const fsdp_bpe_learned *learned,
                                                    const fsdp_option_list *special_tokens,
                                                    fsdp_word_pattern pattern);
