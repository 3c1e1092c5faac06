import torch

from training.losses import cross_entropy, mean_squared_error, positive_hinge


def test_mean_squared_error_on_a_worked_matrix() -> None:
    # Each row is 1/C · ‖Wz − onehot‖², C = 3, then the mean of the rows.
    logits = torch.tensor([[0.5, 0.25, -1.0], [0.0, 2.0, 1.0]])
    rows = [(0.25 + 0.0625 + 1.0) / 3, (0.0 + 4.0 + 0.0) / 3]
    loss = mean_squared_error(logits, torch.tensor([0, 2]))
    torch.testing.assert_close(loss, torch.tensor(sum(rows) / 2))


def test_mean_squared_error_of_the_target_is_zero() -> None:
    assert mean_squared_error(torch.eye(4), torch.arange(4)) == 0


def test_cross_entropy_of_even_logits_is_log_classes() -> None:
    torch.testing.assert_close(
        cross_entropy(torch.zeros(5, 10), torch.arange(5)), torch.log(torch.tensor(10.0))
    )


def test_positives_alone_count_in_fedaws() -> None:
    # Cosines 0.5 and 0.95 to their own classes: 0.4² and nothing, whatever the others are.
    logits = torch.tensor([[0.5, 0.99, -1.0], [0.2, 0.7, 0.95]])
    torch.testing.assert_close(positive_hinge(logits, torch.tensor([0, 2])), torch.tensor(0.08))
