"""How long a compiled step holds its gradients is read from the text of its graph."""

from gradients import held_gradients

GRAPH = """
# IR entry: @step
subgraph @step() {
  %0(x) = Load(%para1_x, UMonad[U]) cnode_attrs: {checkpoint: Bool(1)}
      : (<Ref[Tensor[Float32]], (4, 8)>) -> (<Tensor[Float32], (4, 8)>)
  %1(last) = PrimFunc_MatMul(%0, %0) {instance name: matmul}
      : (<Tensor[Float32], (4, 8)>) -> (<Tensor[Float32], (8, 8)>)
  %2(late) = PrimFunc_Cast(%1, I64(43)) cnode_attrs: {checkpoint: Bool(1)}
      : (<Tensor[Float32], (8, 8)>) -> (<Tensor[Float32], (8, 8)>)
  %3(first) = PrimFunc_Neg(%2)
      : (<Tensor[Float32], (8, 8)>) -> (<Tensor[Float32], (8, 8)>)
  %4(done) = PrimFunc_AdamWeightDecay(%para2_w, REPLACE)
      : (<Tensor[Float32], (8, 8)>) -> (<Tensor[Float32], (8, 8)>)
  %5(after) = UpdateState(UMonad[U], %4)
      : (<UMonad, NoShape>) -> (<UMonad, NoShape>)
  %6(done) = PrimFunc_AdamWeightDecay(%para3_w, OTHER, %5)
      : (<Tensor[Float32], (8, 8)>) -> (<Tensor[Float32], (8, 8)>)
  Return(%6)
}
"""


def test_where_the_first_update_needs_the_last_gradient_all_exist_at_once():
    assert held_gradients(GRAPH.replace("REPLACE", "%3").replace("OTHER", "%1")) == (512, 512)


def test_where_an_update_needs_the_gradient_that_is_there_first_the_next_one_comes_after_it():
    text = GRAPH.replace("REPLACE", "%1").replace("OTHER", "%3").replace("PrimFunc_Cast(%1", "PrimFunc_Cast(%5")
    assert held_gradients(text) == (512, 256)


def test_a_graph_whose_updates_are_elsewhere_tells_nothing():
    assert held_gradients(GRAPH.replace("PrimFunc_AdamWeightDecay", "call @other")) == (0, 0)
