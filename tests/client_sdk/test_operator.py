"""What an operator signs."""

from client_sdk.environment import Environment
from client_sdk.identity import Identity
from client_sdk.operator import Operator
from client_sdk.transport import BlockingDriver
from tests.support.consortium import Consortium
from tests.support.serving import Line


def test_the_admin_and_members_sign_with_their_own_keys(consortium: Consortium) -> None:
    driver = BlockingDriver(consortium.stage.url, transport=Line(consortium.stage))
    environment = Environment(now_s=consortium.clock)
    url = consortium.stage.url
    with Operator(url, admin=consortium.admin, environment=environment, driver=driver) as admin:
        admin.publish_roster(consortium.make_roster(2))
        member = Identity.load(consortium.folder / "member-0")
        reader = Operator(url, member=member, environment=environment, driver=driver)
        assert reader.runs(consortium.name).runs == ()
    assert consortium.operator.roster(consortium.name).number == 2
