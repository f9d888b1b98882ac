/* A tokenizer for random weights: byte-level BPE with as many tokens as the model has. */
#ifndef ASSAY_ENGINE_SYNTH_TOKENIZER_H
#define ASSAY_ENGINE_SYNTH_TOKENIZER_H

#include <jansson.h>

/* tokenizer.json (docs/model.md, section 5) with ids 0 to vocab_size - 1: from 259 tokens on <unk>, <s>, </s>, the 256
 * bytes, then pairs and triples of bytes, each of which BPE builds from its bytes; below that one token per byte. */
json_t *synth_tokenizer(int vocab_size);

#endif
