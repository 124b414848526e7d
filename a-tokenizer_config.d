tokenizer_config.o: src/text/tokenizer_config.c src/base/alloc.h \
 include/fsdp/base.h src/base/assert.h src/base/io.h \
 src/text/token_json.h src/base/json.h src/text/tokenizer_internal.h \
 include/fsdp/text.h src/text/added_tokens.h src/text/char_class.h \
 src/text/normalizer.h src/text/aligned_text.h src/text/utf8.h \
 src/text/token_model.h src/text/post_processor.h \
 src/text/token_sequence.h src/text/pre_tokenizer.h \
 src/text/token_decoder.h src/text/token_texts.h src/base/str.h \
 src/text/vocabulary.h
src/base/alloc.h:
include/fsdp/base.h:
src/base/assert.h:
src/base/io.h:
src/text/token_json.h:
src/base/json.h:
src/text/tokenizer_internal.h:
include/fsdp/text.h:
src/text/added_tokens.h:
src/text/char_class.h:
src/text/normalizer.h:
src/text/aligned_text.h:
src/text/utf8.h:
src/text/token_model.h:
src/text/post_processor.h:
src/text/token_sequence.h:
src/text/pre_tokenizer.h:
src/text/token_decoder.h:
src/text/token_texts.h:
src/base/str.h:
src/text/vocabulary.h:
