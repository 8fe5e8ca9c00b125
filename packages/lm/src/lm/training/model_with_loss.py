"""A model and its loss as one module, as training, scoring and the processes of a run call them."""

from __future__ import annotations

from torch import Tensor, nn

from lm.documents import document_ids_of
from lm.loss import chunked_cross_entropy
from lm.model import Transformer


class ModelWithLoss(nn.Module):
    """Inputs and targets → the sum of the targets' losses, in nats.

    Data-parallel wrappers exchange gradients when the backward pass of the module that they wrap is through, so that
    model and loss are one module; and the logits never stand in memory whole.

    Args:
        model: The model.
        end_of_text: The id that begins a document. Where it is given, the documents of a row do not see each other.
    """

    def __init__(self, model: Transformer, end_of_text: int | None = None) -> None:
        super().__init__()
        self.model, self.end_of_text = model, end_of_text

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """inputs (batch, seq) int64; targets (batch, scored) int64, those of the last `scored` inputs → a scalar.

        A target of loss.IGNORE does not count.
        """
        document_ids = None if self.end_of_text is None else document_ids_of(inputs, self.end_of_text)
        hidden = self.model.hidden(inputs, document_ids)[:, inputs.shape[1] - targets.shape[1] :]
        config = self.model.config
        return chunked_cross_entropy(
            hidden,
            self.model.head_weight,
            targets,
            vocab_size=config.vocab_size,
            softcap=config.logit_softcap,
            reduction="sum",
        )
